//! The API of a self-built app, and its members.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{AES_KEY, AGENT, CORP, FakeWeCom, File, Refused, SECRET, Sent, TOKEN, seal};
use crate::fakes::serving::call::call;

const TEXT_MAX_BYTES: usize = 2_048;

impl FakeWeCom {
    /// A call of the API. The path is without `/cgi-bin/`.
    pub(super) fn answer(
        &self,
        path: &str,
        query: &BTreeMap<String, String>,
        body: &Value,
        file: Option<File>,
    ) -> Result<Value, Refused> {
        let given = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
        if path == "gettoken" {
            return match (given("corpid"), given("corpsecret")) {
                (CORP, SECRET) => {
                    let token = self.token();
                    Ok(json!({ "errcode": 0, "errmsg": "ok", "access_token": token, "expires_in": 7200 }))
                }
                (CORP, _) => Err(Refused(40_001, "invalid credential")),
                _ => Err(Refused(40_013, "invalid corpid")),
            };
        }
        match given("access_token") {
            "" => return Err(Refused(41_001, "access_token missing")),
            token if token == self.token() => {}
            token if token.starts_with("token-") => return Err(Refused(42_001, "access_token expired")),
            _ => return Err(Refused(40_014, "invalid access_token")),
        }
        match path {
            "agent/get" if given("agentid") == AGENT.to_string() => {
                Ok(json!({ "errcode": 0, "errmsg": "ok", "agentid": AGENT, "name": "Helper", "square_logo_url": "",
                    "description": "", "allow_userinfos": { "user": [] }, "close": 0, "redirect_domain": "",
                    "report_location_flag": 0, "isreportenter": 0, "home_url": "" }))
            }
            "agent/get" => Err(Refused(301_002, "not allow operate another agent with this accesstoken")),
            "message/send" => self.take_message(body),
            "media/upload" => {
                let Some(File { mime, filename, bytes }) = file else {
                    return Err(Refused(41_005, "media data missing"));
                };
                check_file(given("type"), &mime, bytes.len())?;
                let id = self.attach(&mime, &filename, &bytes);
                Ok(json!({ "errcode": 0, "errmsg": "ok", "type": given("type"), "media_id": id,
                    "created_at": "1700000000" }))
            }
            "user/get" => {
                Ok(json!({ "errcode": 0, "errmsg": "ok", "userid": given("userid"), "name": given("userid") }))
            }
            _ => Err(Refused(48_002, "api forbidden")),
        }
    }

    fn token(&self) -> String {
        format!("token-{:032}", self.state().token)
    }

    fn take_message(&self, body: &Value) -> Result<Value, Refused> {
        let kind = body["msgtype"].as_str().unwrap_or_default();
        if body["agentid"].as_u64() != Some(AGENT.into()) {
            return Err(Refused(40_056, "invalid agentid"));
        }
        match kind {
            "text" | "markdown" => {
                let text = body[kind]["content"].as_str().unwrap_or_default();
                if text.is_empty() {
                    return Err(Refused(44_004, "content size out of limit: empty content"));
                }
                // The real one cuts it off silently.
                if text.len() > TEXT_MAX_BYTES {
                    return Err(Refused(45_002, "content size out of limit"));
                }
            }
            "image" | "voice" | "video" | "file" => {
                let id = body[kind]["media_id"].as_str().unwrap_or_default();
                if !self.state().files.contains_key(id) {
                    return Err(Refused(40_007, "invalid media_id"));
                }
            }
            _ => return Err(Refused(40_008, "invalid message type")),
        }
        let to = body["touser"].as_str().unwrap_or_default().to_owned();
        if to.is_empty() || to.starts_with("nobody") {
            return Err(Refused(81_013, "user & party & tag all invalid"));
        }
        let mut answer = json!({ "errcode": 0, "errmsg": "ok" });
        if self.state().hidden.contains(&to) {
            answer["invaliduser"] = to.into();
            return Ok(answer);
        }
        let id = format!("msg-{:020}", self.fresh());
        answer["msgid"] = id.as_str().into();
        self.change(|state| state.sent.push(Sent { id, to, message: body.clone() }));
        Ok(answer)
    }

    // ---- members ---------------------------------------------------------------------------

    /// What the vendor asks when the address is entered; returns the answer, and what it should be.
    pub async fn check_address(&self, now_s: u64) -> Result<(u16, String, String), String> {
        let echo = format!("{:019}", 1_616_140_317_555_161_061_u64 + self.fresh());
        let sealed = seal::sealed(&seal::key_of(AES_KEY), self.fresh(), &echo, CORP);
        let query = format!("{}&echostr={}", signed(&sealed, now_s, "greeting"), escaped(&sealed));
        let url = self.state().webhook.clone().ok_or("no webhook is set")?;
        let (status, body) = call("GET", &format!("{url}?{query}"), &[], &[]).await?;
        Ok((status, String::from_utf8_lossy(&body).into_owned(), echo))
    }

    /// A member sends a text; returns its id, and what the callback answered.
    pub async fn say(&self, from: &str, text: &str, now_s: u64) -> Result<(String, u16, String), String> {
        let id = format!("7{:018}", self.fresh());
        let fields =
            format!("<MsgType><![CDATA[text]]></MsgType><Content>{}</Content><MsgId>{id}</MsgId>", cdata(text));
        let (status, body) = self.send_fields(from, &fields, now_s).await?;
        Ok((id, status, body))
    }

    /// A member does what these fields say: `<MsgType>image</MsgType>...`.
    pub async fn send_fields(&self, from: &str, fields: &str, now_s: u64) -> Result<(u16, String), String> {
        let message = format!(
            "<xml><ToUserName><![CDATA[{CORP}]]></ToUserName><FromUserName>{}</FromUserName>\
             <CreateTime>{now_s}</CreateTime>{fields}<AgentID>{AGENT}</AgentID></xml>",
            cdata(from)
        );
        let sealed = seal::sealed(&seal::key_of(AES_KEY), self.fresh(), &message, CORP);
        let nonce = format!("{}", self.fresh());
        let url = self.state().webhook.clone().ok_or("no webhook is set")?;
        let url = format!("{url}?{}", signed(&sealed, now_s, &nonce));
        let body = format!(
            "<xml><ToUserName><![CDATA[{CORP}]]></ToUserName><Encrypt><![CDATA[{sealed}]]></Encrypt>\
             <AgentID><![CDATA[{AGENT}]]></AgentID></xml>"
        );
        let (status, body) = call("POST", &url, &[("Content-Type", "text/xml")], body.as_bytes()).await?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

fn cdata(text: &str) -> String {
    format!("<![CDATA[{}]]>", text.replace("]]>", "]]]]><![CDATA[>"))
}

fn signed(sealed: &str, now_s: u64, nonce: &str) -> String {
    let timestamp = now_s.to_string();
    let signature = seal::signature(TOKEN, &timestamp, nonce, sealed);
    format!("msg_signature={signature}&timestamp={timestamp}&nonce={nonce}")
}

fn escaped(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn check_file(kind: &str, mime: &str, size: usize) -> Result<(), Refused> {
    let (is_right, max) = match kind {
        "image" => (mime.starts_with("image/") || mime == "application/octet-stream", 10 << 20),
        "voice" => (mime == "audio/amr" || mime == "application/octet-stream", 2 << 20),
        "video" => (mime == "video/mp4" || mime == "application/octet-stream", 10 << 20),
        "file" => (true, 20 << 20),
        _ => return Err(Refused(40_004, "invalid media type")),
    };
    match (is_right, size) {
        (false, _) => Err(Refused(40_004, "invalid media type")),
        (true, 0..=5) => Err(Refused(40_006, "invalid media size")),
        (true, size) if size > max => Err(Refused(45_001, "media size out of limit")),
        _ => Ok(()),
    }
}
