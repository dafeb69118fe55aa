//! The coordinator's page, its interface for programs and its metrics. Nobody can change anything by them.
//!
//! Everything runs in one thread beside the coordinator: the questions are short, and a page that is slow must not slow the sites.

mod api;
mod following;
mod in_process;
mod login;
mod metrics;
mod options;
mod pages;
mod serving;
mod tls;
mod unread;

pub use in_process::InProcess;
pub(crate) use options::PageOptions;

use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use axum::Router;

use crate::alarm::Watched;
use crate::error::Failure;
use crate::folder::{Folder, Known, Members};
use crate::store::{Reader, Series};
use crate::view::Views;
use login::Login;
use longhaul_kernel::stderr_line;

/// What answers have in common.
struct Web {
    folder: Folder,
    reader: Reader,
    series: Series,
    login: Login,
    alarms: Arc<Watched>,
    views: Views,
    members: Known<Members>,
}

/// Listens where the options say so, and answers for ever, in a thread.
///
/// # Errors
/// Where the address cannot be used, or the certificate.
pub(crate) fn start(folder: &Folder, options: &PageOptions, alarms: &Arc<Watched>) -> Result<(), Failure> {
    let Some(address) = options.http else { return Ok(()) };
    let tls = tls::acceptor(folder, options, address)?;
    let login = Login::new(folder, options.public, tls.is_some())?;
    let listener = TcpListener::bind(address).map_err(|error| {
        Failure::new(format_args!("cannot listen at {address}: {error}")).remedy("give another --http")
    })?;
    listener.set_nonblocking(true).map_err(Failure::new)?;
    let bound = listener.local_addr().map_err(Failure::new)?;
    stderr_line!("page at {}://{bound}/", if tls.is_some() { "https" } else { "http" });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
    let (router, series) = runtime.block_on(router(folder, login, alarms))?;
    let serve = move || {
        runtime.block_on(async { tokio::join!(serving::serve(listener, tls, router), following::follow(series)) })
    };
    thread::Builder::new().name("page".into()).spawn(serve).map_err(Failure::new)?;
    Ok(())
}

/// All that answers, and what follows new results.
async fn router(folder: &Folder, login: Login, alarms: &Arc<Watched>) -> Result<(Router, Series), Failure> {
    let store = folder.store()?;
    let (reader, series) = (Reader::open(store.clone()).await?, Series::open(store).await?);
    let (folder, alarms, views, members) = (folder.clone(), Arc::clone(alarms), Views::default(), Known::default());
    let web = Web { folder, reader, series: series.clone(), login, alarms, views, members };
    Ok((pages::router(Arc::new(web)), series))
}
