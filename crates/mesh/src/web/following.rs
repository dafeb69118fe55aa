//! Takes new results into the figures of pairs by hour and day, beside the answers.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::store::Series;
use longhaul_kernel::stderr_line;

/// New results are looked for after this.
const FOLLOWED_EVERY: Duration = Duration::from_secs(2);
/// Others write and ask between two steps of many results, for as long as the step took, and this at least and at most.
const REST_LEAST: Duration = Duration::from_millis(20);
const REST_MOST: Duration = Duration::from_secs(1);

/// Follows for ever.
pub(super) async fn follow(series: Series) {
    let mut failed = String::new();
    loop {
        let begun = Instant::now();
        let has_more = series.follow().await;
        if let Err(error) = &has_more {
            // It says what fails when that begins, not each time again.
            let text = error.to_string();
            if text != failed {
                stderr_line!("page: figures of pairs: {text}");
            }
            failed = text;
        }
        let rest = begun.elapsed().clamp(REST_LEAST, REST_MOST);
        sleep(if matches!(has_more, Ok(true)) { rest } else { FOLLOWED_EVERY }).await;
    }
}
