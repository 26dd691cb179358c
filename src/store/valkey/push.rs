//! The way of a journal to the server: frames of one account go there together and in order, with their numbers, so that
//! what is sent twice is charged once.

use std::collections::BTreeMap;
use std::rc::Rc;

use redis::{RedisResult, Script};
use tokio::task::JoinSet;

use super::ValkeyTerms;
use super::link::{ANSWER, Link, Mode};
use super::names::{self, Keys};
use crate::store::journal::{Frame, Frames};

/// Frames that are sent before the next are: with a handful of accounts, a few steps of a millisecond.
const BATCH: usize = 512;
/// Frames of one account in one step: a script keeps everybody else waiting.
const STEP: usize = 64;
/// Accounts that are under way at a time.
const TOGETHER: usize = 32;

/// Why frames were not brought to the server.
#[derive(Debug, thiserror::Error)]
pub(super) enum PushError {
    #[error(transparent)]
    Server(#[from] redis::RedisError),
    #[error("frame {0} is of a later version")]
    Record(u64),
    #[error("{confirmed} of {wanted} replicas have what was settled")]
    Replicas { confirmed: u32, wanted: u32 },
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("a step ended in the middle")]
    Task,
}

/// One step: frames of one account.
struct Step {
    keys: Keys,
    arguments: Vec<Vec<u8>>,
}

/// Brings the frames of a segment to the server. Returns the holds that ended with them.
pub(super) async fn push(
    link: &Rc<Link>,
    terms: &ValkeyTerms,
    segment: &[u8],
) -> Result<Vec<u64>, PushError> {
    let Some(frames) = Frames::new(segment) else { return Ok(Vec::new()) };
    let journal = frames.journal();
    let frames: Vec<Frame<'_>> = frames.collect();
    let mut ended = Vec::new();
    for batch in frames.chunks(BATCH) {
        let mut steps: BTreeMap<String, Vec<Step>> = BTreeMap::new();
        for frame in batch {
            let (hold, record, bytes) =
                names::decode(frame.payload).ok_or(PushError::Record(frame.number))?;
            ended.extend((hold != 0).then_some(hold));
            let of_account = steps.entry(record.account.to_owned()).or_default();
            let full = |step: &Step| step.arguments.len() >= STEP * 16;
            if of_account.last().is_none_or(full) {
                let arguments = vec![
                    format!("{journal:016x}").into_bytes(),
                    terms.records.as_millis().to_string().into(),
                ];
                of_account.push(Step { keys: Keys::of(record.account), arguments });
            }
            let Some(step) = of_account.last_mut() else { continue };
            let (names, sums) = names::sums(&record);
            let hold = if hold == 0 { String::new() } else { names::hold(journal, hold) };
            let cost = record.cost.max(0).to_string();
            let texts = [frame.number.to_string(), hold, cost];
            step.arguments.extend(texts.map(String::into_bytes));
            step.arguments.push(bytes.to_vec());
            step.arguments.push(names.into_bytes());
            step.arguments.push(sums.len().to_string().into_bytes());
            for (name, sum) in sums {
                step.arguments.extend([name.as_bytes().to_vec(), sum.to_string().into_bytes()]);
            }
        }
        send(link, steps).await?;
    }
    if terms.replicas > 0 && !frames.is_empty() {
        confirm(link, terms).await?;
    }
    Ok(ended)
}

async fn send(link: &Rc<Link>, steps: BTreeMap<String, Vec<Step>>) -> Result<(), PushError> {
    let mut under_way = JoinSet::new();
    for (account, steps) in steps {
        if under_way.len() >= TOGETHER
            && let Some(done) = under_way.join_next().await
        {
            done.map_err(|_| PushError::Task)??;
        }
        let link = link.clone();
        under_way.spawn_local(async move {
            let used = link
                .run(async |connection| {
                    redis::cmd("SADD").arg(names::USED).arg(&account).query_async::<i64>(connection).await
                })
                .await;
            used?;
            // One after the other: the server takes frames of a journal in order.
            for step in &steps {
                settle(&link, step).await?;
            }
            RedisResult::Ok(())
        });
    }
    while let Some(done) = under_way.join_next().await {
        done.map_err(|_| PushError::Task)??;
    }
    Ok(())
}

async fn settle(link: &Link, step: &Step) -> RedisResult<i64> {
    let script = Script::new(include_str!("settle.lua"));
    let mut call = script.prepare_invoke();
    let Keys { account, holds, ends, records, sums, .. } = &step.keys;
    for key in [account, holds, ends, records, sums] {
        call.key(key);
    }
    for argument in &step.arguments {
        call.arg(argument);
    }
    link.run(async |connection| call.invoke_async(connection).await).await
}

/// Waits until replicas have what was sent.
async fn confirm(link: &Link, terms: &ValkeyTerms) -> Result<(), PushError> {
    if link.mode() == &Mode::Cluster {
        return Ok(());
    }
    let millis = u64::try_from(ANSWER.as_millis() / 2).unwrap_or(u64::MAX);
    let confirmed: u32 = link
        .run(async |connection| {
            redis::cmd("WAIT").arg(terms.replicas).arg(millis).query_async(connection).await
        })
        .await?;
    let wanted = terms.replicas;
    if confirmed < wanted { Err(PushError::Replicas { confirmed, wanted }) } else { Ok(()) }
}
