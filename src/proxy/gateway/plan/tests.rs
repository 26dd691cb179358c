use super::*;

#[test]
fn losses_refuse_policy_names_the_first_loss_that_is_not_silent() {
    let loss = |element: &'static str, policy| Loss { element: element.into(), policy, clamped: false };
    let losses = || vec![loss("seed", LossPolicy::Silent), loss("top_p", LossPolicy::Warn)];
    for policy in [Losses::Allow, Losses::Warn] {
        assert_eq!(apply_loss_policy(losses(), policy, Format::Messages), (losses(), None));
    }
    let (counted, refused) = apply_loss_policy(losses(), Losses::Refuse, Format::Messages);
    assert_eq!(counted, [loss("seed", LossPolicy::Silent), loss("top_p", LossPolicy::Refuse)]);
    let refused = refused.unwrap();
    assert_eq!(refused.kind, ErrorKind::Unsupported);
    assert_eq!(refused.param.as_deref(), Some("top_p"));
    let harmless = vec![loss("seed", LossPolicy::Silent)];
    assert_eq!(apply_loss_policy(harmless.clone(), Losses::Refuse, Format::Chat), (harmless, None));
}

#[test]
fn losses_warning_header_is_sanitized_and_bounded() {
    let loss = |element: &'static str, policy| Loss { element: element.into(), policy, clamped: false };
    assert_eq!(warning(&[loss("seed", LossPolicy::Silent)]), None);
    let losses = [loss("temperature", LossPolicy::Warn), loss("x\r\ny, ü", LossPolicy::Warn)];
    assert_eq!(warning(&losses).unwrap(), "temperature dropped, xy dropped");
    let many: Vec<Loss> = (0..99).map(|_| loss("logprobs", LossPolicy::Warn)).collect();
    assert!(warning(&many).unwrap().len() < 300);
}
