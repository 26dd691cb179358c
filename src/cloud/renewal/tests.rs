use std::time::Duration;

use super::{Renewal, RenewalPolicy, Standing};
use crate::token::{Lifetime, TokenError};

const HALF: u64 = u64::MAX / 2;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn renewal() -> Renewal {
    Renewal::new(RenewalPolicy::default(), false, secs(100))
}

fn granted(renewal: &mut Renewal, life: u64, now: u64) {
    renewal.grant(Lifetime::For(secs(life)), secs(now), secs(now), 0, HALF).unwrap();
}

#[test]
fn renewal_is_due_at_once_without_a_credential() {
    let renewal = renewal();
    assert_eq!((renewal.due(), renewal.standing(secs(100))), (Some(secs(100)), Standing::Missing));
}

#[test]
fn renewal_leads_the_end_by_ten_minutes_or_half_of_a_short_life() {
    let mut renewal = renewal();
    for (life, due) in [(3_600, 3_100 - 30), (1_200, 700 - 30), (600, 400 - 30), (60, 130 - 3)] {
        granted(&mut renewal, life, 100);
        let at = renewal.due().unwrap();
        assert!(at.abs_diff(secs(due)) <= secs(1), "{life}: {at:?}");
        assert_eq!(renewal.end(), Some(secs(100 + life)));
    }
    // A token of one second: half of it is used before the next one is requested.
    granted(&mut renewal, 1, 100);
    assert_eq!(renewal.due(), Some(secs(100) + Duration::from_millis(500)));
}

#[test]
fn renewal_counts_the_life_from_the_request() {
    let mut renewal = renewal();
    renewal.grant(Lifetime::For(secs(60)), secs(90), secs(100), 0, 0).unwrap();
    assert_eq!(renewal.end(), Some(secs(150)));
    // A response that took longer than the life of its credential.
    let refused = renewal.grant(Lifetime::For(secs(5)), secs(90), secs(100), 0, 0);
    assert_eq!(refused, Err(TokenError::Expired));
    assert_eq!(renewal.end(), Some(secs(150)), "the present one stays");
}

#[test]
fn renewal_compares_a_stated_end_with_the_date_of_the_server() {
    let mut renewal = renewal();
    // The clock of this machine is of no importance: the server says what time it is.
    renewal.grant(Lifetime::Until(1_000_060), secs(100), secs(100), 1_000_000, 0).unwrap();
    assert_eq!(renewal.end(), Some(secs(160)));
    for end in [999_999, 1_000_000, 0, i64::MIN] {
        let refused = renewal.grant(Lifetime::Until(end), secs(100), secs(100), 1_000_000, 0);
        assert_eq!(refused, Err(TokenError::Expired), "{end}");
    }
    assert_eq!((renewal.end(), renewal.standing(secs(159))), (Some(secs(160)), Standing::Valid));
}

#[test]
fn renewal_believes_no_absurd_life() {
    let mut renewal = renewal();
    for absurd in [Lifetime::For(Duration::MAX), Lifetime::Until(i64::MAX)] {
        let accepted = renewal.grant(absurd, secs(100), secs(100), 0, 0).unwrap();
        assert_eq!(accepted.life, Some(secs(36 * 3_600)), "{absurd:?}");
        assert_eq!(renewal.due(), Some(secs(100 + 36 * 3_600 - 600)));
    }
}

#[test]
fn renewal_of_an_unknown_or_unlimited_life() {
    let mut renewal = renewal();
    renewal.grant(Lifetime::Unknown, secs(100), secs(100), 0, 0).unwrap();
    assert_eq!((renewal.due(), renewal.end()), (Some(secs(1_000)), None));
    // It never counts as expired, however long the server is away.
    assert_eq!(renewal.standing(secs(1_000_000)), Standing::Valid);
    renewal.grant(Lifetime::Unlimited, secs(100), secs(100), 0, 0).unwrap();
    assert_eq!((renewal.due(), renewal.end()), (None, None));
    assert!(!renewal.refuse(secs(200)), "a refusal cannot renew what is part of the configuration");
}

#[test]
fn renewal_pauses_double_and_stay_below_a_quarter_of_the_rest() {
    let mut renewal = renewal();
    granted(&mut renewal, 3_600, 0);
    let mut now = secs(3_000);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        renewal.fail(now, u64::MAX);
        let due = renewal.due().unwrap();
        pauses.push((due - now).as_secs_f64().round() as u64);
        now = due;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    renewal.fail(secs(3_590), u64::MAX);
    assert!(renewal.due().unwrap() <= secs(3_593));
    // Without a valid credential the attempts are frequent: requests wait for it.
    for _ in 0..20 {
        renewal.fail(secs(4_000), u64::MAX);
    }
    assert!(renewal.due().unwrap() <= secs(4_005));
    granted(&mut renewal, 3_600, 5_000);
    assert_eq!(renewal.failures(), 0);
}

#[test]
fn renewal_pause_has_a_random_half() {
    let mut renewal = renewal();
    granted(&mut renewal, 3_600, 0);
    for _ in 0..10 {
        renewal.fail(secs(1_000), 0);
    }
    assert_eq!(renewal.due(), Some(secs(1_030)));
    renewal.fail(secs(1_000), u64::MAX);
    assert!(renewal.due().unwrap().abs_diff(secs(1_060)) < Duration::from_micros(1));
}

#[test]
fn renewal_after_a_refusal_is_not_repeated_at_once() {
    let mut renewal = renewal();
    granted(&mut renewal, 3_600, 100);
    assert!(renewal.refuse(secs(200)));
    assert_eq!(renewal.due(), Some(secs(200)));
    granted(&mut renewal, 3_600, 201);
    assert!(!renewal.refuse(secs(202)), "refused for good: no second renewal within 30 s");
    assert!(renewal.refuse(secs(231)));
}

#[test]
fn renewal_keeps_an_expired_credential_that_its_provider_may_accept() {
    let mut renewal = Renewal::new(RenewalPolicy::default(), true, secs(100));
    let accepted = renewal.grant(Lifetime::Until(50), secs(100), secs(100), 60, HALF).unwrap();
    let life = accepted.life.unwrap();
    assert!(life > secs(300) && life < secs(600), "{life:?}");
    assert_eq!(renewal.due(), renewal.end());
}

#[test]
fn renewal_of_an_outlived_credential_is_tried_every_minute() {
    let mut renewal = Renewal::new(RenewalPolicy::default(), true, secs(0));
    granted(&mut renewal, 3_600, 0);
    assert_eq!(renewal.standing(secs(3_599)), Standing::Valid);
    assert_eq!(renewal.standing(secs(3_600)), Standing::Outlived);
    for _ in 0..20 {
        renewal.fail(secs(4_000), u64::MAX);
    }
    // Requests have a credential: the service is not asked every few seconds, as it is without one.
    let due = renewal.due().unwrap();
    assert!(due > secs(4_050) && due <= secs(4_060), "{due:?}");
    granted(&mut renewal, 3_600, 4_060);
    assert_eq!(renewal.standing(secs(4_061)), Standing::Valid);
}

/// A token server that is away for some time, at any point of a credential's life: there is always a valid credential.
#[test]
fn renewal_outlasts_an_outage_that_is_shorter_than_the_life() {
    for life in [3_600, 600, 60] {
        for start in (0..2 * life).step_by(7) {
            let mut renewal = Renewal::new(RenewalPolicy::default(), false, secs(0));
            // The lead is the least that is left when the outage begins.
            let away = secs(start)..secs(start) + secs(life.min(1_200)) / 2 - secs(life.min(1_200)) / 10;
            let mut first = true;
            for round in 0_u64.. {
                let now = renewal.due().unwrap();
                if now > secs(4 * life) {
                    break;
                }
                let standing = renewal.standing(now);
                assert!(first || standing == Standing::Valid, "life {life}, outage from {start}: {now:?}");
                let random = round.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                if !first && away.contains(&now) {
                    renewal.fail(now, random);
                } else {
                    renewal.grant(Lifetime::For(secs(life)), now, now, 0, random).unwrap();
                    first = false;
                }
            }
        }
    }
}
