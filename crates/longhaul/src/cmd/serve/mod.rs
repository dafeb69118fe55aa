//! `longhaul serve`.

mod background;
mod metrics;

use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_kernel::address::at_port;
use longhaul_kernel::memory::available;
use longhaul_kernel::process::allow_many_files;
use longhaul_kernel::signals::Stop;
use longhaul_peer::listening::SILENT;
use longhaul_peer::server::{DataPort, Ended, ServeOptions, Server};
use longhaul_session::limits::report_cap;
use longhaul_session::{BusyPolicy, Caps};
use longhaul_udp::MAX_PAYLOAD_BYTES;
use longhaul_units::{BitRate, Bytes, Nanos};

use crate::args::listen::{Listen, Listening, not_bound};
use crate::output::limited::LimitedLines;
use crate::output::overwrite::Overwrite;
use crate::output::prometheus::PrometheusArgs;
use crate::output::{Failure, Outcome, say, with_flags};

/// The port of the control connection.
pub(crate) const PORT: u16 = 5210;

/// Answer the tests of other hosts
///
/// Listens only on loopback (in a lab: on all addresses). --bind changes that, and then needs --key.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul serve --bind 0.0.0.0 --key longhaul.key
  longhaul serve -D --bind 0.0.0.0 --key longhaul.key --data-port 5210   # all at one port")]
pub(crate) struct Args {
    #[command(flatten)]
    listen: Listen,
    /// Listen at this port
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// Receive data at this port, TCP and UDP, one test at a time; may be the same as --port [default: ports that the kernel chooses]
    #[arg(long, value_name = "PORT", conflicts_with = "sessions", value_parser = clap::value_parser!(u16).range(1..))]
    data_port: Option<u16>,
    /// Refuse longer tests, and end those with -n or -k after this time; a client that does not end its test is dropped at most 80 s later
    #[arg(long, value_name = "TIME", default_value = "1h")]
    time_cap: Nanos,
    /// Refuse tests at a higher rate: payload bits per second of all streams
    #[arg(long, value_name = "RATE")]
    rate_cap: Option<BitRate>,
    /// Refuse tests with a longer payload per packet
    #[arg(long, value_name = "BYTES", default_value_t = MAX_PAYLOAD_BYTES)]
    length_cap: u32,
    /// Refuse tests whose TCP flows write longer blocks
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    block_cap: Bytes,
    /// Refuse tests with larger socket buffers
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    buffer_cap: Bytes,
    /// Refuse tests that could use more memory than this on this host; `longhaul docs services` lists what counts [default: a quarter of the
    /// memory that is available at the start]
    #[arg(long, value_name = "SIZE")]
    memory_cap: Option<Bytes>,
    /// Allow or refuse tests that change settings of this host while they run: RPS, GRO, NAPI, ring and interrupts of the receiving
    /// interface, a NIC's time stamps, congestion controls that the kernel must load [default: allow with --key and in a lab, else refuse]
    #[arg(long, value_name = "WHETHER")]
    host_settings: Option<HostSettings>,
    /// Run at most this many tests at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    sessions: usize,
    /// Let at most this many clients wait for their turn; refuse the others
    #[arg(long, value_name = "N", default_value_t = 8)]
    queue: usize,
    /// Serve one test, then end
    #[arg(short = '1', long)]
    once: bool,
    /// Run in the background once the server listens; print its process id
    #[arg(short = 'D', long)]
    daemon: bool,
    /// Append log lines to this file, with -D [default: none]
    #[arg(long, value_name = "FILE", requires = "daemon")]
    logfile: Option<PathBuf>,
    #[command(flatten)]
    prometheus: PrometheusArgs,
    #[command(flatten)]
    overwrite: Overwrite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum HostSettings {
    /// Allow them; restore the settings when the test ends.
    Allow,
    /// Refuse them.
    Refuse,
}

pub(crate) fn run(args: Args) -> Outcome {
    if args.daemon && !background::is_here() {
        return background::start();
    }
    let Listening { address, key, is_trusted } = args.listen.check()?;
    let memory = args.memory_cap.unwrap_or_else(|| Bytes(available().bytes.0 / 4));
    let caps = Caps {
        duration: args.time_cap,
        rate: args.rate_cap,
        payload_bytes: args.length_cap,
        block: args.block_cap,
        sockbuf: args.buffer_cap,
        memory,
        report: report_cap(memory),
        tuned_buffer: Bytes(last_of("net.ipv4.tcp_rmem").max(last_of("net.ipv4.tcp_wmem"))),
        tuned_buffers: Bytes(last_of("net.ipv4.tcp_mem").saturating_mul(rustix::param::page_size() as u64)),
        host_settings: args.host_settings.map_or(is_trusted, |asked| asked == HostSettings::Allow),
        ..Caps::default()
    };
    let options = ServeOptions {
        key,
        caps,
        at_once: args.sessions,
        data_port: match args.data_port {
            None => DataPort::Any,
            Some(port) if port == args.port => DataPort::Control(port),
            Some(port) => DataPort::Fixed(port),
        },
        policy: if args.queue == 0 { BusyPolicy::Refuse } else { BusyPolicy::Queue(args.queue) },
    };
    let metrics = args.prometheus.open(args.overwrite)?;
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    // Each connection takes two or three. With the limit as it was there is room for fewer.
    let _ = allow_many_files();
    let address = at_port(address, args.port);
    let server = Server::bind(address, options).map_err(|error| not_bound(address, &error, "server"))?;
    let listening = format!("listening at {}", server.address().unwrap_or(address));
    if args.daemon {
        background::leave(&listening, args.logfile.as_deref())?;
        say(listening);
    } else {
        say(format_args!("{listening}; Ctrl-C ends"));
    }
    let log = Log::default();
    let log = move |ended: &Ended| log.enter(ended);
    let served = match metrics {
        None => server.run(Some(stop), args.once, log),
        Some(file) => metrics::run(file, &server, Some(stop), args.once, log),
    };
    served.map_err(|error| Failure::new("serve", error))?;
    Ok(ExitCode::SUCCESS)
}

/// The last of the three numbers of a kernel parameter (tcp(7)): what it lets something grow to. 0: not known.
fn last_of(parameter: &str) -> u64 {
    let text = longhaul_kernel::sysctl::read(parameter).unwrap_or_default();
    text.split_whitespace().last().and_then(|last| last.parse().ok()).unwrap_or(0)
}

/// What the server says of connections. Those of strangers leave room for tests.
#[derive(Debug, Default)]
struct Log {
    tests: LimitedLines,
    failures: LimitedLines,
}

impl Log {
    fn enter(&self, ended: &Ended) {
        match &ended.result {
            // Who only tries an address is nobody's business.
            Err(error) if error.code == SILENT => {}
            Ok(_) => self.tests.say(format_args!("{}: test done", ended.peer)),
            Err(error) => {
                self.failures.say(format_args!("{}: {} ({})", ended.peer, with_flags(&error.message), error.code))
            }
        }
    }
}
