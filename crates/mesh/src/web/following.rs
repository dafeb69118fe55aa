//! Takes new results into the figures of pairs by hour and day, beside the answers.

use std::time::Duration;

use tokio::time::sleep;

use crate::store::Series;
use longhaul_kernel::stderr_line;

/// New results are looked for after this.
const FOLLOWED_EVERY: Duration = Duration::from_secs(2);
/// Others write and ask between two steps of many results.
const REST: Duration = Duration::from_millis(20);

/// Follows for ever.
pub(super) async fn follow(series: Series) {
    let mut failed = String::new();
    loop {
        let has_more = series.follow().await;
        if let Err(error) = &has_more {
            // It says what fails when that begins, not each time again.
            let text = error.to_string();
            if text != failed {
                stderr_line!("page: figures of pairs: {text}");
            }
            failed = text;
        }
        sleep(if matches!(has_more, Ok(true)) { REST } else { FOLLOWED_EVERY }).await;
    }
}
