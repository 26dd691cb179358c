//! `aws` of a provider: the order of the sources, and faults in words.

use super::cloud::Machine;
use cloud::token::{Step, StepResult};

const KIND: &str = "bedrock";
const AUTO: &str = "aws = { region = \"eu-west-1\" }";

/// Returns the URL or the path of the first step of the source that a provider with these lines has.
fn first_step(machine: &Machine, lines: &str) -> String {
    let provider = machine.provider(KIND, lines).unwrap();
    let source = provider.cloud.clone().unwrap().source;
    match source.begin().advance(StepResult::Begin, 1_795_000_000).unwrap() {
        Step::Send(request) => request.url,
        Step::Read(path) => path.display().to_string(),
        Step::Done(_) => "granted".to_owned(),
    }
}

#[test]
fn aws_container_takes_the_relative_uri_before_the_full_one() {
    let container = "aws = { region = \"eu-west-1\", source = \"container\" }";
    let machine = Machine::default()
        .env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/relative")
        .env("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/full");
    for lines in [container, AUTO] {
        assert_eq!(first_step(&machine, lines), "http://169.254.170.2/v2/relative", "{lines}");
    }
    // A setting is stronger than the environment.
    let set = "aws = { region = \"eu-west-1\", source = \"container\", endpoint = \"http://127.0.0.1/set\" }";
    assert_eq!(first_step(&machine, set), "http://127.0.0.1/set");
    let full = Machine::default().env("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/full");
    assert_eq!(first_step(&full, AUTO), "http://127.0.0.1/full");
}

#[test]
fn aws_instance_has_an_address_of_each_protocol() {
    let machine = Machine::default();
    assert_eq!(first_step(&machine, AUTO), "http://169.254.169.254/latest/api/token");
    let machine = machine.env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6");
    assert_eq!(first_step(&machine, AUTO), "http://[fd00:ec2::254]/latest/api/token");
    let machine = machine.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9/");
    assert_eq!(first_step(&machine, AUTO), "http://127.0.0.1:9/latest/api/token");
    let profile = Machine::default()
        .env("AWS_CONFIG_FILE", "/aws/config")
        .file("/aws/config", "[default]\nec2_metadata_service_endpoint_mode = ipv6\n");
    assert_eq!(first_step(&profile, AUTO), "http://[fd00:ec2::254]/latest/api/token");
    let wrong = Machine::default().env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "7");
    let fault = wrong.fault(KIND, AUTO);
    assert!(fault.contains("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE must be IPv4 or IPv6, not 7"), "{fault}");
}

#[test]
fn aws_region_is_that_of_the_instance_if_nothing_else_names_one() {
    let region = |machine: &Machine| {
        let provider = machine.provider(KIND, "aws = {}").unwrap();
        provider.cloud.clone().unwrap().signing.unwrap().region.to_string()
    };
    let instance = || Machine::default().region("ap-south-1");
    assert_eq!(region(&instance()), "ap-south-1");
    assert_eq!(region(&instance().env("AWS_REGION", "eu-central-1")), "eu-central-1");
    let disabled = instance().env("AWS_EC2_METADATA_DISABLED", "true");
    let fault = disabled.fault(KIND, "aws = {}");
    assert!(fault.contains("provider.aws.region") || fault.contains("region"), "{fault}");
}

#[test]
fn aws_role_of_the_settings_is_assumed_with_the_web_identity_of_the_environment() {
    let lines = "aws = { region = \"eu-west-1\", role_arn = \"arn:aws:iam::1:role/other\" }";
    let machine = Machine::default().env("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/token");
    let name = |machine: &Machine| machine.read(KIND, lines).unwrap();
    assert_eq!(name(&machine), "web identity", "its only role");
    let machine = machine.env("AWS_ROLE_ARN", "arn:aws:iam::1:role/pod");
    assert_eq!(name(&machine), "assume role", "a second role, on top of that of the pod");
}

#[test]
fn aws_profiles_of_people_and_programs_are_named() {
    for (setting, way) in [
        ("sso_session = s", "the profile default has sso_session: it signs in with a browser"),
        ("sso_start_url = https://x", "the profile default has sso_start_url: it signs in with a browser"),
        ("login_session = s", "the profile default has login_session: it signs in with a browser"),
        ("credential_process = /bin/x", "the profile default has credential_process: it runs a program"),
    ] {
        let text = format!("[default]\nregion = eu-west-1\n{setting}\n");
        let machine = Machine::default().env("AWS_CONFIG_FILE", "/aws/config").file("/aws/config", &text);
        let fault = machine.fault(KIND, AUTO);
        assert!(fault.contains(way) && fault.contains("aws configure export-credentials"), "{fault}");
        // Another source is taken if the configuration names it.
        let instance = "aws = { region = \"eu-west-1\", source = \"instance\" }";
        assert_eq!(machine.read(KIND, instance).unwrap(), "instance metadata");
    }
    // A profile that only sets the region has no credentials: the chain goes on.
    let machine =
        Machine::default().env("AWS_CONFIG_FILE", "/aws/config").file("/aws/config", "[default]\nregion=x\n");
    assert_eq!(machine.read(KIND, AUTO).unwrap(), "instance metadata");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one row for each fault")]
fn aws_faults_name_the_setting() {
    let role = "[profile p]\nrole_arn = arn:aws:iam::1:role/r\n";
    let config =
        |text: &str| Machine::default().env("AWS_CONFIG_FILE", "/aws/config").file("/aws/config", text);
    let secret = "credential = { value = \"HUSH\" }\n";
    let aws = |rest: &str| format!("aws = {{ region = \"eu-west-1\", {rest} }}");
    let profile = aws("profile = \"p\"");
    for (machine, lines, expected) in [
        (Machine::default(), aws("source = \"sso\""), "instance"),
        (Machine::default(), aws("source = \"static\""), "a static source needs access_key_id"),
        (Machine::default(), aws("access_key_id = \"A\""), "access_key_id needs the secret access key"),
        (
            Machine::default(),
            aws("session_token = { value = \"HUSH\" }"),
            "session_token has no effect without access_key_id",
        ),
        (
            Machine::default(),
            format!("{secret}{}", aws("source = \"instance\", access_key_id = \"A\"")),
            "access_key_id has no effect with source = \"instance\"",
        ),
        (
            Machine::default(),
            aws("source = \"container\", profile = \"p\""),
            "profile has no effect with source = \"container\"",
        ),
        (
            Machine::default(),
            aws("source = \"instance\", token_file = \"t\""),
            "token_file has no effect with source = \"instance\"",
        ),
        (Machine::default(), aws("source = \"web-identity\""), "a web identity needs token_file"),
        (
            Machine::default(),
            aws("token_file = \"t\""),
            "the web identity of t needs a role: role_arn, or AWS_ROLE_ARN",
        ),
        (
            Machine::default().env("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/token"),
            aws("source = \"auto\""),
            "the web identity of /var/token needs a role",
        ),
        (Machine::default(), aws("source = \"container\""), "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
        (
            Machine::default(),
            aws("source = \"container\", endpoint = \"http://10.0.0.1/\""),
            "a full URI must be https, or http to this machine or to ECS or EKS",
        ),
        (
            Machine::default().env("AWS_ACCESS_KEY_ID", "A"),
            AUTO.to_owned(),
            "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not",
        ),
        (
            Machine::default().env("AWS_SECRET_ACCESS_KEY", "HUSH"),
            AUTO.to_owned(),
            "AWS_SECRET_ACCESS_KEY is set, but AWS_ACCESS_KEY_ID is not",
        ),
        (
            Machine::default().env("AWS_EC2_METADATA_DISABLED", "true"),
            AUTO.to_owned(),
            "no credentials are configured, and AWS_EC2_METADATA_DISABLED is set",
        ),
        (Machine::default(), profile.clone(), "no shared file has access keys or a role of the profile p"),
        (
            config(role),
            profile.clone(),
            "the profile p has a role, but no source_profile or credential_source",
        ),
        (
            config(&format!("{role}source_profile = q\n")),
            profile.clone(),
            "the source_profile q of p has no access keys",
        ),
        (
            config(&format!("{role}credential_source = Disk\n")),
            profile.clone(),
            "the profile p has the credential_source Disk",
        ),
        (
            config(&format!("{role}credential_source = Environment\n")),
            profile.clone(),
            "the profile p takes its keys from the environment, which has none",
        ),
        (
            config(&format!("{role}mfa_serial = x\nsource_profile = q\n")),
            profile.clone(),
            "the profile p needs a second factor",
        ),
        (
            config(&format!("{role}source_profile = q\n[profile q]\nrole_arn = r\nsource_profile = p\n")),
            profile.clone(),
            "leads to itself",
        ),
        (
            Machine::default().env("AWS_CONFIG_FILE", "/aws/config").unreadable("/aws/config"),
            profile,
            "the shared file /aws/config cannot be read",
        ),
    ] {
        let fault = machine.fault(KIND, &lines);
        assert!(fault.contains(expected), "{lines}: {fault}");
    }
}

#[test]
fn aws_static_keys_may_have_a_session() {
    let lines = "credential = { value = \"HUSH\" }\n\
                 aws = { region = \"eu-west-1\", access_key_id = \"A\", session_token = { env = \"TOKEN\" } }";
    let machine = Machine::default().env("TOKEN", "HUSH-session");
    let provider = machine.provider(KIND, lines).unwrap();
    let fixed = provider.cloud.clone().unwrap().source.fixed().unwrap();
    let cloud::token::Credential::Aws(keys) = fixed else { panic!("{fixed:?}") };
    assert_eq!(keys.session_token.as_deref(), Some("HUSH-session"));
    let missing = Machine::default().fault(KIND, lines);
    assert!(missing.contains("TOKEN"), "{missing}");
    // Keys of the environment are static as well.
    let environment = Machine::default()
        .env("AWS_ACCESS_KEY_ID", "A")
        .env("AWS_SECRET_ACCESS_KEY", "HUSH")
        .env("AWS_SESSION_TOKEN", "HUSH");
    let lines = "aws = { region = \"eu-west-1\", source = \"static\" }";
    assert_eq!(environment.read(KIND, lines).unwrap(), "static");
}
