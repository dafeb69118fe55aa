//! A hostile server: a relay between a client and a server that have no key, which changes what the server says.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use longhaul_channel::{PREAMBLE_BYTES, to_frame};
use serde_json::Value;

/// Connects those who come to `listener` with `server`. For a message of the server they get what `change` makes of it. At the server's end their
/// connections stay, and nobody says anything.
pub(crate) fn relay(
    listener: TcpListener,
    server: SocketAddr,
    change: impl Fn(Value) -> Vec<Value> + Clone + Send + 'static,
) {
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, change) = (client.unwrap(), change.clone());
            thread::spawn(move || {
                let server = TcpStream::connect(server).unwrap();
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let asks = thread::spawn(move || {
                    let _ = std::io::copy(&mut &from, &mut &to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let _ = answer(&server, &client, change);
                let _ = asks.join();
            });
        }
    });
}

fn answer(mut server: &TcpStream, mut client: &TcpStream, change: impl Fn(Value) -> Vec<Value>) -> std::io::Result<()> {
    let mut preamble = [0; PREAMBLE_BYTES];
    server.read_exact(&mut preamble)?;
    assert_eq!(&preamble, b"longhaul/1 plain");
    client.write_all(&preamble)?;
    loop {
        let mut length = [0; 4];
        server.read_exact(&mut length)?;
        let mut message = vec![0; u32::from_be_bytes(length) as usize];
        server.read_exact(&mut message)?;
        for said in change(serde_json::from_slice(&message)?) {
            client.write_all(&to_frame(&said).unwrap())?;
        }
    }
}
