//! Answers lines for limitador: the storage (memory, redis or cached), the address of Redis, units,
//! seconds.
use std::collections::HashMap;
use std::sync::Arc;

use base64::{engine::general_purpose::STANDARD, Engine};
use limitador::limit::{Context, Limit};
use limitador::storage::redis::{AsyncRedisStorage, CachedRedisStorage};
use limitador::{AsyncRateLimiter, CheckResult, RateLimiter};
use tokio::io::{stdin, AsyncBufReadExt, BufReader};

enum Limiter {
    Memory(RateLimiter),
    Redis(AsyncRateLimiter),
}

impl Limiter {
    async fn check(&self, key: String, cost: u64) -> Result<CheckResult, String> {
        let context = Context::from(HashMap::from([("key".to_string(), key)]));
        match self {
            Limiter::Memory(l) => l.check_rate_limited_and_update(&"n".into(), &context, cost),
            Limiter::Redis(l) => l.check_rate_limited_and_update(&"n".into(), &context, cost).await,
        }
        .map_err(|e| format!("{e:?}"))
    }
}

/// The answer to one call. A refusal tells the time until its window ends.
async fn answer(limiter: &Limiter, key: &str, cost: u64) -> String {
    let key = match STANDARD.decode(key) {
        Ok(bytes) => bytes.iter().map(|&b| b as char).collect(),
        Err(e) => return format!("error {e}"),
    };
    match limiter.check(key, cost).await {
        Ok(r) if !r.limited => "granted 0".to_string(),
        Ok(r) => match r.counters.first().and_then(|c| c.expires_in()) {
            Some(wait) => format!("refused {}", wait.as_secs_f64() * 1e3),
            None => "refused -1".to_string(),
        },
        Err(e) => format!("error {}", e.split_whitespace().collect::<Vec<_>>().join(" ")),
    }
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let url = format!("redis://{}", args[2]);
    let limiter = match args[1].as_str() {
        "memory" => Limiter::Memory(RateLimiter::new(1_000_000)),
        "redis" => Limiter::Redis(AsyncRateLimiter::new_with_storage(Box::new(AsyncRedisStorage::new(&url).await.unwrap()))),
        _ => Limiter::Redis(AsyncRateLimiter::new_with_storage(Box::new(CachedRedisStorage::new(&url).await.unwrap()))),
    };
    let limit = Limit::new("n", args[3].parse().unwrap(), args[4].parse().unwrap(), vec![], vec!["key".try_into().unwrap()]);
    match &limiter {
        Limiter::Memory(l) => l.add_limit(limit),
        Limiter::Redis(l) => l.add_limit(limit),
    };
    let limiter = Arc::new(limiter);
    println!("ready");
    let mut lines = BufReader::new(stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let parts: Vec<&str> = line.split(' ').collect();
            println!("{} {}", parts[0], answer(&limiter, parts[1], parts[2].parse().unwrap_or(0)).await);
        });
    }
}
