//! Configuration of LiteLLM, with simulated providers in place of its own.
//!
//! It is read line by line and not as YAML, so that what the test expects does not come from the reader under test.

use super::provider::{CREDENTIAL, Place, Providers, Task};

/// Prefix of a reference to the environment.
const REFERENCE: &str = "os.environ/";

/// Names of models that the configurations read from the environment.
pub(super) const MODEL_VARIABLES: [(&str, &str); 2] =
    [("OPENAI_MODEL_ASSISTANT", "openai/gpt-4o"), ("OPENAI_MODEL_LITE", "openai/gpt-4o-mini")];

/// Configuration, rewritten.
pub(super) struct Source {
    /// Repository and path, in backquotes.
    pub(super) origin: String,
    pub(super) text: String,
    /// Variables with addresses that the text refers to.
    pub(super) addresses: Vec<(String, String)>,
    pub(super) deployments: Vec<Deployment>,
    /// Master key as the text has it, which may be a reference. `None` without one.
    pub(super) master_key: Option<String>,
}

/// Deployment of the source.
#[derive(Clone)]
pub(super) struct Deployment {
    /// `model_name`.
    pub(super) name: String,
    /// `litellm_params.model`, with its prefix.
    pub(super) model: String,
    /// Provider that serves it. `None` for one that LiteLLM does not know, or that no simulator is of.
    pub(super) place: Option<Place>,
    /// Its named credential is missing or ambiguous.
    pub(super) lacks_credential: bool,
}

impl Deployment {
    /// Returns a deployment. `has_base` for one with an address, which makes any model one of OpenAI's API.
    pub(super) fn new(name: &str, model: &str, has_base: bool) -> Deployment {
        let place = Place::of(model, has_base);
        Deployment { name: name.to_owned(), model: model.to_owned(), place, lacks_credential: false }
    }

    pub(super) fn is_pattern(&self) -> bool {
        self.name.contains('*') || self.model.contains('*')
    }

    /// Returns what the model is for, by its name.
    pub(super) fn task(&self) -> Task {
        let has = |word: &str| self.model.contains(word);
        match () {
            () if has("embed") => Task::Embedding,
            () if has("rerank") => Task::Rerank,
            () if has("gpt-image") || has("image-preview") => Task::Image,
            () => Task::Conversation,
        }
    }
}

/// Returns the value of a key in a line, without quotes and comment. `None` for another line.
fn value<'t>(line: &'t str, key: &str) -> Option<&'t str> {
    let line = line.trim_start_matches(['-', ' ']);
    let rest = line.strip_prefix(key)?.strip_prefix(':')?;
    let rest = rest.split(" #").next().unwrap_or_default();
    Some(rest.trim().trim_matches(['"', '\'']))
}

/// Returns the number of blanks before the first other character of a line.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

impl Source {
    /// Reads a configuration, and leads its deployments to simulated providers.
    pub(super) fn read(text: &str, providers: &Providers) -> Source {
        let origin = text.lines().next().and_then(|line| line.strip_prefix("# Source: "));
        let origin = origin.and_then(|line| line.split(" at ").next()).unwrap_or("(unknown)");
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
        let first = lines.iter().position(|line| line.starts_with("model_list:")).unwrap() + 1;
        let rest = &lines[first..];
        let count = rest.iter().position(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
        let (list, after) = rest.split_at(count.unwrap_or(rest.len()));
        let mut source = Source {
            origin: format!("`{origin}`"),
            text: lines[..first].join("\n") + "\n",
            addresses: Vec::new(),
            deployments: Vec::new(),
            master_key: lines.iter().find_map(|line| value(line, "master_key")).map(str::to_owned),
        };
        let list: Vec<&str> = list.iter().copied().filter(|line| !line.trim().is_empty()).collect();
        let starts = |line: &str| line.trim_start().starts_with("- ") && indent(line) == indent(list[0]);
        let mut items: Vec<Vec<&str>> = Vec::new();
        for line in &list {
            match items.last_mut() {
                Some(item) if !starts(line) => item.push(line),
                _ => items.push(vec![line]),
            }
        }
        for item in items {
            source.read_deployment(&item, providers);
        }
        source.text += &after.join("\n");
        source.text += "\n";
        source
    }

    /// Returns the region of AWS, which is that of inference profiles that the configuration names.
    pub(super) fn region(&self) -> &'static str {
        let region =
            ["ap-northeast-3", "eu-central-1"].into_iter().find(|region| self.origin.contains(region));
        region.unwrap_or("us-east-1")
    }

    fn read_deployment(&mut self, item: &[&str], providers: &Providers) {
        let find = |key: &str| item.iter().find_map(|line| value(line, key));
        let model = find("model").unwrap();
        let variable = model.strip_prefix(REFERENCE);
        let variable = variable.and_then(|name| MODEL_VARIABLES.iter().find(|(of, _)| *of == name));
        let model = variable.map_or(model, |(_, model)| model);
        let base = find("api_base").or(find("base_url"));
        let mut deployment = Deployment::new(find("model_name").unwrap(), model, base.is_some());
        if deployment.place == Some(Place::Gemini)
            && base.is_some_and(|base| base.contains("//aiplatform.googleapis.com/"))
        {
            deployment.place = Some(Place::VertexExpress);
        }
        let named = find("litellm_credential_name");
        deployment.lacks_credential = named.is_some_and(|name| ["missing", "duplicate"].contains(&name));
        let address = deployment.place.map(|place| (place, providers.base_url(place)));
        let mut is_placed = false;
        for line in item {
            match (&address, value(line, "api_base").or(value(line, "base_url")), value(line, "api_key")) {
                (Some((_, url)), Some(base), _) => match base.strip_prefix(REFERENCE) {
                    Some(name) => {
                        self.addresses.push((name.to_owned(), url.clone()));
                        self.text += &format!("{line}\n");
                    }
                    None => self.text += &format!("{}api_base: {url}\n", &line[..indent(line)]),
                },
                (Some(_), _, Some(key)) if !key.starts_with(REFERENCE) => {
                    self.text += &format!("{}api_key: {CREDENTIAL}\n", &line[..indent(line)]);
                }
                _ => self.text += &format!("{line}\n"),
            }
            if let Some((place, url)) = address.as_ref().filter(|_| base.is_none() && !is_placed)
                && value(line, "model").is_some()
            {
                let key = if *place == Place::Bedrock { "aws_bedrock_runtime_endpoint" } else { "api_base" };
                self.text += &format!("{}{key}: {url}\n", &line[..indent(line)]);
                is_placed = true;
            }
        }
        self.deployments.push(deployment);
    }
}
