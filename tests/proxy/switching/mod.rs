//! Conversations that move among five providers: what each one signed returns to it as it gave it and reaches no other,
//! ids of calls are legal everywhere, and what a provider has in its prompt cache stays valid.

mod check;
mod client;
mod providers;

use serde_json::{Value, json};

use super::support::client::post;
use super::support::gateway::Gateway;
use super::support::valkey::Server;
use super::websocket::client::Socket;
use check::check;
use client::{Client, Format, whole, with_access_key};
use providers::{Exchange, Maker, Providers};

/// Providers of the ten turns: of the calls, and of the answer to their results.
const TURNS: [[Maker; 2]; 10] = {
    use Maker::{Anthropic, Bedrock, Gemini, Kimi, OpenAi};
    [
        [OpenAi, OpenAi],
        [Anthropic, Anthropic],
        [Gemini, Gemini],
        [Bedrock, Bedrock],
        [Kimi, Kimi],
        [OpenAi, Anthropic],
        [Gemini, Bedrock],
        [Kimi, OpenAi],
        [Bedrock, Gemini],
        [Anthropic, Kimi],
    ]
};

/// Returns what the user says in a turn, which names both tools. Some turns have an image.
fn prompt(turn: usize) -> (String, bool) {
    (format!("Turn {turn}: please look and find \"é\\n\" {}", "x".repeat(turn)), turn % 4 == 2)
}

/// Sends each turn to the model that `models` names for it, through the gateways in turn.
async fn converse(
    gateways: &[&Gateway],
    client: &mut Client,
    mut models: impl FnMut(usize) -> [&'static str; 2],
) {
    let mut gateways = gateways.iter().cycle();
    for turn in 0..TURNS.len() {
        let [first, second] = models(turn);
        let (text, pictured) = prompt(turn);
        client.say(&text, pictured);
        client.ask(gateways.next().unwrap(), first).await;
        assert_eq!(client.open.len(), 2, "parallel calls: {:?}", client.items.last());
        client.run_tools();
        client.ask(gateways.next().unwrap(), second).await;
        assert!(client.open.is_empty(), "{:?}", client.items.last());
    }
}

/// Returns the models of a turn. `shift` exchanges the providers in a circle, so that another one begins.
fn switching(shift: usize) -> impl FnMut(usize) -> [&'static str; 2] {
    move |turn| TURNS[turn].map(|maker| Maker::ALL[(maker as usize + shift) % 5].name())
}

async fn switches(format: Format) {
    for (stream, shift) in [(false, format as usize), (true, format as usize + 2)] {
        let providers = Providers::start().await;
        let gateway = Gateway::start(&with_access_key(providers.setup())).await;
        let mut client = Client::new(format, stream);
        converse(&[&gateway], &mut client, switching(shift)).await;
        let log = providers.log.all();
        assert_eq!(log.len(), 2 * TURNS.len());
        check(&format!("{format:?}, stream {stream}, shift {shift}"), &log, None);
    }
}

#[tokio::test]
async fn switching_client_of_chat() {
    switches(Format::Chat).await;
}

#[tokio::test]
async fn switching_client_of_messages() {
    switches(Format::Messages).await;
}

#[tokio::test]
async fn switching_client_of_responses() {
    switches(Format::Responses).await;
}

#[tokio::test]
async fn switching_client_of_generate() {
    switches(Format::Generate).await;
}

#[tokio::test]
async fn switching_client_of_converse() {
    switches(Format::Converse).await;
}

/// One provider serves models of several makers, of which one signs.
#[tokio::test]
async fn switching_among_makers_at_one_provider() {
    for (number, format) in Format::ALL.into_iter().enumerate() {
        let providers = Providers::start().await;
        let gateway = Gateway::start(&with_access_key(providers.setup())).await;
        let mut client = Client::new(format, number % 2 == 0);
        let names = [Maker::Bedrock.name(), Maker::Nova.name()];
        converse(&[&gateway], &mut client, |turn| [names[turn % 2], names[turn / 2 % 2]]).await;
        check(&format!("{format:?} at one provider"), &providers.log.all(), None);
    }
}

/// Clients that keep only texts, calls and their ids: the signatures come from the store.
#[tokio::test]
async fn switching_client_that_keeps_no_signatures() {
    // Claude and Gemini refuse a conversation whose client has lost what they signed, in their own formats.
    for (number, format, own) in [(0, Format::Chat, Maker::Kimi), (1, Format::Responses, Maker::OpenAi)] {
        let providers = Providers::start().await;
        let gateway = Gateway::start(&with_access_key(providers.setup())).await;
        let mut client = Client { forgets: true, ..Client::new(format, format != Format::Chat) };
        converse(&[&gateway], &mut client, switching(number)).await;
        check(&format!("{format:?}"), &providers.log.all(), Some(own));
    }
}

/// The first target fails in the calls of turn 4 and in the answer of turn 7.
#[tokio::test]
async fn switching_by_fallback_in_the_middle() {
    use Maker::{Anthropic, Bedrock, Gemini, Kimi, OpenAi};
    for (number, format) in Format::ALL.into_iter().enumerate() {
        let pairs =
            [[OpenAi, Anthropic], [Gemini, Bedrock], [Kimi, OpenAi], [Anthropic, Gemini], [Bedrock, Kimi]];
        for (stream, makers) in [(false, pairs[number]), (true, pairs[(number + 2) % 5])] {
            let providers = Providers::start().await;
            let setup = Providers::with_fallback(with_access_key(providers.setup()), "mixed", makers);
            let gateway = Gateway::start(&setup).await;
            let mut client = Client::new(format, stream);
            let label = format!("{format:?}, stream {stream}, {makers:?}");
            for turn in 0..TURNS.len() {
                let (text, pictured) = prompt(turn);
                client.say(&text, pictured);
                providers.log.fail((turn == 4).then_some(makers[0]));
                client.ask(&gateway, "mixed").await;
                client.run_tools();
                providers.log.fail((turn == 7).then_some(makers[0]));
                client.ask(&gateway, "mixed").await;
            }
            let log = providers.log.all();
            for maker in makers {
                assert!(log.iter().any(|one| one.maker == maker && one.status == 200), "{label}: {maker:?}");
            }
            check(&label, &log, None);
        }
    }
}

/// Asks with what is new only, and takes the response.
fn continued(client: &Client, model: &str, previous: &Value, store: bool) -> Value {
    let mut body = client.body(model);
    body["store"] = json!(store);
    body["stream"] = json!(false);
    if previous.is_string() {
        body["previous_response_id"] = previous.clone();
    }
    body
}

/// Takes a response that the gateway keeps: the client sends only what is new after it.
fn keep(client: &mut Client, response: &Value) -> Value {
    client.take(whole(Format::Responses, response));
    client.items.clear();
    response["id"].clone()
}

/// A conversation that the gateway stores. OpenAI, which stores its responses itself, is asked beside it after each turn.
async fn stored(gateways: &[&Gateway], providers: &Providers, label: &str) {
    let mut gateways = gateways.iter().cycle();
    let mut client = Client::new(Format::Responses, false);
    let mut previous = Value::Null;
    let stored_here = |maker: Maker, turn: usize| match maker {
        Maker::OpenAi => Maker::ALL[1 + turn % 4],
        maker => maker,
    };
    for (turn, makers) in TURNS.into_iter().enumerate() {
        let [first, second] = makers.map(|maker| stored_here(maker, turn));
        let (text, pictured) = prompt(turn);
        client.say(&text, pictured);
        for (maker, is_answer) in [(first, false), (second, true)] {
            if is_answer {
                client.run_tools();
            }
            for maker in [Maker::OpenAi, maker] {
                if maker == Maker::OpenAi && previous.is_null() {
                    continue;
                }
                let body = continued(&client, maker.name(), &previous, maker != Maker::OpenAi);
                let answer = gateways.next().unwrap().ask(post("/v1/responses", body.to_string())).await;
                assert_eq!(answer.status(), 200, "{label}: {body}: {}", answer.everything());
                if maker != Maker::OpenAi {
                    previous = keep(&mut client, &answer.json());
                }
            }
        }
    }
    let mut log = providers.log.all();
    assert_eq!(log.len(), 4 * TURNS.len() - 1);
    // What OpenAI answered is no part of the conversation.
    log.iter_mut().filter(|one| one.maker == Maker::OpenAi).for_each(|one| one.answered.clear());
    check(label, &log, None);
}

#[tokio::test]
async fn switching_in_a_stored_conversation() {
    let providers = Providers::start().await;
    let gateway = Gateway::start(&providers.setup()).await;
    stored(&[&gateway], &providers, "stored").await;
}

#[tokio::test]
async fn switching_over_a_websocket() {
    let providers = Providers::start().await;
    let gateway = Gateway::start(&providers.setup()).await;
    let mut socket = Socket::open(&gateway).await;
    let mut client = Client::new(Format::Responses, false);
    let mut previous = Value::Null;
    for (turn, [first, second]) in TURNS.into_iter().enumerate() {
        let (text, pictured) = prompt(turn);
        client.say(&text, pictured);
        for (maker, is_answer) in [(first, false), (second, true)] {
            if is_answer {
                client.run_tools();
            }
            let mut body = continued(&client, maker.name(), &previous, false);
            body.as_object_mut().unwrap().remove("stream");
            let end = socket.ask(body).await;
            assert_eq!(end["type"], "response.completed", "turn {turn} at {maker:?}: {end}");
            previous = keep(&mut client, &end["response"]);
        }
    }
    let log: Vec<Exchange> = providers.log.all();
    assert_eq!(log.len(), 2 * TURNS.len());
    check("websocket", &log, None);
}

/// Two gateways with one store answer in turn.
#[tokio::test]
async fn switching_in_a_fleet() {
    let Some(server) = Server::start() else { return };
    let formats = Format::ALL.into_iter().map(|format| (format, None));
    let forgetful = [(Format::Chat, Some(Maker::Kimi)), (Format::Responses, Some(Maker::OpenAi))];
    for (number, (format, own)) in formats.chain(forgetful).enumerate() {
        let providers = Providers::start().await;
        let mut setup = with_access_key(providers.setup());
        setup.log = format!("[store]\nvalkey = \"{}\"\n", server.url());
        let (one, two) = (Gateway::start(&setup).await, Gateway::start(&setup).await);
        let mut client = Client { forgets: own.is_some(), ..Client::new(format, number % 2 == 0) };
        converse(&[&one, &two, &two], &mut client, switching(number)).await;
        check(&format!("{format:?} in the fleet, forgetful {own:?}"), &providers.log.all(), own);
    }
    let providers = Providers::start().await;
    let mut setup = providers.setup();
    setup.log = format!("[store]\nvalkey = \"{}\"\n", server.url());
    let (one, two) = (Gateway::start(&setup).await, Gateway::start(&setup).await);
    stored(&[&one, &two, &two], &providers, "stored in the fleet").await;
}
