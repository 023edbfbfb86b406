//! Log lines of the tools.

use tracing::level_filters::LevelFilter;

/// Writes log lines to standard error, from the level that `NEXAR_LOG` names up: `off`, `error`, `warn` (the
/// default), `info`, `debug` or `trace`.
///
/// # Errors
///
/// A message if `NEXAR_LOG` names no level.
pub fn start() -> Result<(), String> {
    let level = match std::env::var("NEXAR_LOG") {
        Ok(name) if !name.is_empty() => name.parse().map_err(|_| {
            format!("NEXAR_LOG: '{name}' is none of off, error, warn, info, debug, trace")
        })?,
        _ => LevelFilter::WARN,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
    Ok(())
}
