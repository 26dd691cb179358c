//! What whoever settles may rely on.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// The numbers of all frames in both segments.
fn written(journal: &Journal) -> Vec<u64> {
    let writing = journal.writing.lock();
    let segments = [Some(&writing.current), writing.spare.as_ref()];
    let mut numbers = Vec::new();
    for segment in segments.into_iter().flatten() {
        let mut pieces = segment.pieces().unwrap();
        while let Some(piece) = pieces.next().unwrap() {
            numbers.extend(Frames::new(piece).unwrap().map(|frame| frame.number));
        }
    }
    numbers
}

/// While the disk is full and has room again all the time, nothing that was settled is left out or written twice: what was
/// not confirmed is written too, as soon as there is room.
#[test]
fn nothing_is_lost_while_the_disk_is_full_now_and_then() {
    const THREADS: u64 = 4;
    const FRAMES: u64 = 2_000;
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::create(folder.path(), SEGMENT).unwrap());
    let thread = JournalThread::start(&journal).unwrap();
    let stop = AtomicBool::new(false);
    let confirmed = std::thread::scope(|scope| {
        let disk = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                journal.set_limit(0);
                std::thread::park_timeout(Duration::from_micros(300));
                journal.set_limit(SEGMENT);
                let _ = journal.write_queued();
                std::thread::park_timeout(Duration::from_micros(300));
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                let journal = &journal;
                scope.spawn(move || {
                    let settle = |n: u64| journal.append(|out| out.extend_from_slice(&n.to_le_bytes()));
                    (0..FRAMES).filter(|n| settle(*n).wait(PATIENCE).is_ok()).count()
                })
            })
            .collect();
        let confirmed: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        stop.store(true, Ordering::Relaxed);
        disk.join().unwrap();
        confirmed
    });
    journal.set_limit(SEGMENT);
    // The end brings it to the file, without anybody settling anything more.
    drop(thread);
    assert!(!journal.is_failing());
    let written = written(&journal);
    let once: BTreeSet<u64> = written.iter().copied().collect();
    assert_eq!((written.len(), once.len()), (8_000, 8_000));
    assert!(confirmed > 0);
}

/// The thread tries again by itself, also when nobody settles anything.
#[test]
fn what_no_file_took_is_written_when_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::create(folder.path(), 0).unwrap());
    let _thread = JournalThread::start(&journal).unwrap();
    let told = journal.append(|out| out.push(1)).wait(PATIENCE);
    assert!(matches!(told, Err(StoreError::Failed(_))), "{told:?}");
    assert!(journal.is_failing());
    let told = journal.append(|out| out.push(2)).wait(PATIENCE);
    assert!(matches!(told, Err(StoreError::Failed(_))), "{told:?}");
    journal.set_limit(SEGMENT);
    let end = Instant::now() + PATIENCE;
    while journal.is_failing() && Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(written(&journal), [1, 2]);
}

/// A disk that stands still stops the thread and nobody else.
#[test]
fn whoever_settles_does_not_wait_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::create(folder.path(), SEGMENT).unwrap());
    let thread = JournalThread::start(&journal).unwrap();
    let stalled = journal.writing.lock();
    // This thread has the lock of the files: were it asked for here, this would not go on.
    let pending: Vec<Settled> = (0..1_000).map(|_| journal.append(|out| out.push(1))).collect();
    assert!(pending.iter().all(|settled| matches!(settled, Settled::Pending(_))));
    drop(stalled);
    for settled in pending {
        assert_eq!(settled.wait(PATIENCE), Ok(()));
    }
    drop(thread);
    assert_eq!(written(&journal).len(), 1_000);
}

/// What is beyond the memory that is set aside for it is lost, and said to be.
#[test]
fn what_no_file_takes_is_bounded_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::create(folder.path(), 0).unwrap();
    for _ in 0..1_000 {
        drop(journal.append(|out| out.resize(out.len() + 60_000, 1)));
    }
    assert!(journal.write_queued().is_err());
    let held = journal.writing.lock().batch.len() + journal.queue.lock().frames.len();
    assert!(held < UNWRITTEN + 100_000, "{held}");
    let told = journal.append(|out| out.push(1));
    assert!(matches!(told, Settled::Known(Err(_))));
}

#[test]
fn files_that_were_removed_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::create(&folder.path().join("journal"), SEGMENT).unwrap();
    assert!(journal.is_there());
    std::fs::rename(folder.path().join("journal"), folder.path().join("away")).unwrap();
    assert!(!journal.is_there());
    std::fs::rename(folder.path().join("away"), folder.path().join("journal")).unwrap();
    assert!(journal.is_there());
}
