//! Guarantees of the journal to its callers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Poll;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the numbers of all frames in both segments.
fn written(journal: &Journal) -> Vec<u64> {
    let writing = journal.writing.lock();
    let segments = [Some(&writing.current), writing.spare.as_ref()];
    let mut numbers = Vec::new();
    for segment in segments.into_iter().flatten() {
        let mut pieces = segment.pieces().unwrap();
        while let Some(piece) = pieces.next().unwrap() {
            numbers.extend(JournalFrames::new(piece).unwrap().map(|frame| frame.number));
        }
    }
    numbers
}

/// While the disk alternates between full and not full, no settled frame is lost or written twice. Unconfirmed frames
/// are written as soon as there is space.
#[test]
fn journal_with_a_disk_full_at_times_writes_each_frame_once() {
    const THREADS: u64 = 4;
    const FRAMES: u64 = 2_000;
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::create(folder.path(), DEFAULT_SEGMENT_LIMIT).unwrap());
    let thread = JournalThread::start(&journal).unwrap();
    let stop = AtomicBool::new(false);
    let (confirmed, end) = (AtomicBool::new(false), Instant::now() + PATIENCE);
    let appended = std::thread::scope(|scope| {
        let disk = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                journal.set_limit(0);
                std::thread::park_timeout(Duration::from_micros(300));
                journal.set_limit(DEFAULT_SEGMENT_LIMIT);
                let _ = journal.write_queued();
                std::thread::park_timeout(Duration::from_micros(300));
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                let (journal, confirmed) = (&journal, &confirmed);
                scope.spawn(move || {
                    let settle = |n: u64| journal.append(|out| out.extend_from_slice(&n.to_le_bytes()));
                    // On a busy machine all of them may fall into one time without space: further ones do not.
                    let goes_on =
                        |n: u64| n < FRAMES || !confirmed.load(Ordering::Relaxed) && Instant::now() < end;
                    (0..)
                        .take_while(|n| goes_on(*n))
                        .inspect(|n| {
                            confirmed.fetch_or(settle(*n).wait(PATIENCE).is_ok(), Ordering::Relaxed);
                        })
                        .count()
                })
            })
            .collect();
        let appended: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        stop.store(true, Ordering::Relaxed);
        disk.join().unwrap();
        appended
    });
    journal.set_limit(DEFAULT_SEGMENT_LIMIT);
    // The end of the thread writes the rest; no further `append` is needed.
    drop(thread);
    assert!(!journal.is_failing());
    let written = written(&journal);
    let once: BTreeSet<u64> = written.iter().copied().collect();
    assert_eq!((written.len(), once.len()), (appended, appended));
    assert!(confirmed.into_inner());
}

/// The thread retries by itself, without a further `append`.
#[test]
fn journal_retries_unwritten_frames_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::create(folder.path(), 0).unwrap());
    let _thread = JournalThread::start(&journal).unwrap();
    let settled = journal.append(|out| out.push(1)).wait(PATIENCE);
    assert!(matches!(settled, Err(StoreError::Failed(_))), "{settled:?}");
    assert!(journal.is_failing());
    let settled = journal.append(|out| out.push(2)).wait(PATIENCE);
    assert!(matches!(settled, Err(StoreError::Failed(_))), "{settled:?}");
    journal.set_limit(DEFAULT_SEGMENT_LIMIT);
    let end = Instant::now() + PATIENCE;
    while journal.is_failing() && Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(written(&journal), [1, 2]);
}

/// A stalled disk blocks the journal thread only.
#[test]
fn journal_append_does_not_wait_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::create(folder.path(), DEFAULT_SEGMENT_LIMIT).unwrap());
    let thread = JournalThread::start(&journal).unwrap();
    let stalled = journal.writing.lock();
    // This test holds the lock of the files: an `append` that took it would deadlock here.
    let pending: Vec<Settled> = (0..1_000).map(|_| journal.append(|out| out.push(1))).collect();
    assert!(pending.iter().all(|settled| matches!(settled, Settled::Pending(_))));
    drop(stalled);
    for settled in pending {
        assert_eq!(settled.wait(PATIENCE), Ok(()));
    }
    drop(thread);
    assert_eq!(written(&journal).len(), 1_000);
}

/// Waits until the thread sleeps.
fn wait_for_sleep(journal: &Journal) {
    let end = Instant::now() + PATIENCE;
    while !journal.queue.lock().sleeping {
        assert!(Instant::now() < end, "the thread does not sleep");
        std::thread::yield_now();
    }
}

/// Requests that a worker runs one after another have one wake-up of the thread and one write.
#[test]
fn journal_is_woken_once_for_the_requests_of_a_turn() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::create(folder.path(), DEFAULT_SEGMENT_LIMIT).unwrap());
    let _thread = JournalThread::start(&journal).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for _ in 0..10 {
        wait_for_sleep(&journal);
        runtime.block_on(async {
            let mut requests = tokio::task::JoinSet::new();
            for _ in 0..20 {
                let journal = journal.clone();
                requests.spawn(async move {
                    let settled = journal.append(|out| out.push(1));
                    let sleeping = journal.queue.lock().sleeping;
                    (sleeping, settled.within(PATIENCE).await)
                });
            }
            let done = requests.join_all().await;
            assert!(done.iter().all(|(sleeping, settled)| *sleeping && settled.is_ok()), "{done:?}");
        });
    }
    assert_eq!(written(&journal).len(), 200);
}

#[test]
fn journal_frame_whose_request_is_gone_is_written_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::create(folder.path(), DEFAULT_SEGMENT_LIMIT).unwrap());
    let _thread = JournalThread::start(&journal).unwrap();
    let gone = |settled: Settled| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            // Dropped in the pause before it would wake the thread.
            let mut waiting = std::pin::pin!(settled.within(PATIENCE));
            let first = std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx)));
            assert!(first.await.is_pending());
        });
    };
    for dropped in [drop, gone] {
        wait_for_sleep(&journal);
        let before = journal.writing.lock().current.end;
        dropped(journal.append(|out| out.push(1)));
        let end = Instant::now() + PATIENCE;
        while journal.writing.lock().current.end == before {
            assert!(Instant::now() < end, "the frame is not written");
            std::thread::yield_now();
        }
    }
}

/// Frames beyond the memory limit are lost, and their outcome says so.
#[test]
fn journal_unwritten_frames_are_bounded_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::create(folder.path(), 0).unwrap());
    for _ in 0..1_000 {
        drop(journal.append(|out| out.resize(out.len() + 60_000, 1)));
    }
    assert!(journal.write_queued().is_err());
    let held = journal.writing.lock().batch.len() + journal.queue.lock().frames.len();
    assert!(held < MAX_QUEUED_BYTES + 100_000, "{held}");
    let settled = journal.append(|out| out.push(1));
    assert!(matches!(settled, Settled::Known(Err(_))));
}

#[test]
fn journal_detects_removed_files() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::create(&folder.path().join("journal"), DEFAULT_SEGMENT_LIMIT).unwrap();
    assert!(journal.files_exist());
    std::fs::rename(folder.path().join("journal"), folder.path().join("away")).unwrap();
    assert!(!journal.files_exist());
    std::fs::rename(folder.path().join("away"), folder.path().join("journal")).unwrap();
    assert!(journal.files_exist());
}
