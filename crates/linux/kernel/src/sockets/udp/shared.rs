//! A sender and a receiver on one socket.

use std::net::SocketAddr;

use super::{ReceiverOptions, SenderOptions, UdpOpenError, UdpReceiver, UdpSender};

impl UdpSender {
    /// A receiver on the same socket, address and port; both may work in different threads. It gets only what the peer sends.
    ///
    /// # Errors
    /// [`UdpOpenError::Step`].
    pub fn receiver(&self, options: &ReceiverOptions) -> Result<UdpReceiver, UdpOpenError> {
        let fd = self.fd.try_clone().map_err(UdpOpenError::step("dup"))?;
        Ok(UdpReceiver::of(fd, options)?.sharing(&self.errors))
    }
}

impl UdpReceiver {
    /// A sender on the same socket, address and port, once it is connected; both may work in different threads.
    ///
    /// # Errors
    /// [`UdpOpenError::Step`].
    pub fn sender(&self, options: &SenderOptions) -> Result<UdpSender, UdpOpenError> {
        let fd = self.fd.try_clone().map_err(UdpOpenError::step("dup"))?;
        Ok(UdpSender::of(fd, options)?.sharing(&self.errors))
    }

    /// As [`UdpReceiver::sender`], connecting the socket to `peer` first: while another thread receives, whom it has been
    /// receiving from.
    ///
    /// # Errors
    /// As [`UdpReceiver::connect`] and [`UdpReceiver::sender`].
    pub fn sender_to(&self, peer: SocketAddr, options: &SenderOptions) -> Result<UdpSender, UdpOpenError> {
        self.take_from(peer)?;
        self.sender(options)
    }
}
