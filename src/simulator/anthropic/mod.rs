//! stub
use super::http::Reply;
use super::server::Call;
#[derive(Debug, Default)]
pub(super) struct Site;
impl Site {
    pub(super) fn answer(&self, _c: &Call<'_>) -> Reply {
        Reply::new(200, "text/plain", "")
    }
}
