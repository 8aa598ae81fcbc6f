// A scheduling plugin for Skerry, as a WebAssembly module: prefers workers near the depot that a service names by its label
// "depot". DEPOTS in the environment says where depots are: NAME=LATITUDE,LONGITUDE, separated by blanks.
//
// It uses the standard library alone, and brings its own small reader of JSON; with serde_json it would be half as long.

use std::collections::HashMap;
use std::io::Read;

enum Json {
    Null,
    Bool,
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Map(HashMap<String, Json>),
}

impl Json {
    fn get(&self, key: &str) -> &Json {
        match self {
            Json::Map(m) => m.get(key).unwrap_or(&Json::Null),
            _ => &Json::Null,
        }
    }
    fn text(&self) -> Option<&str> {
        if let Json::Text(s) = self { Some(s) } else { None }
    }
    fn number(&self) -> Option<f64> {
        if let Json::Number(n) = self { Some(*n) } else { None }
    }
}

/// Reads JSON that is known to be valid, as Skerry's is; on anything else it stops with an error.
struct Reader<'a> {
    rest: &'a [u8],
}

type Result<T> = std::result::Result<T, String>;

impl<'a> Reader<'a> {
    fn peek(&mut self) -> Result<u8> {
        while let Some((b' ' | b'\n' | b'\r' | b'\t', rest)) = self.rest.split_first() {
            self.rest = rest;
        }
        self.rest.first().copied().ok_or_else(|| "the query ends early".to_string())
    }
    fn take(&mut self) -> Result<u8> {
        let (first, rest) = self.rest.split_first().ok_or("the query ends early")?;
        self.rest = rest;
        Ok(*first)
    }
    fn word(&mut self, word: &str, value: Json) -> Result<Json> {
        self.rest = self.rest.strip_prefix(word.as_bytes()).ok_or("not JSON")?;
        Ok(value)
    }
    fn value(&mut self) -> Result<Json> {
        match self.peek()? {
            b'{' => self.map(),
            b'[' => self.list(),
            b'"' => Ok(Json::Text(self.string()?)),
            b't' => self.word("true", Json::Bool),
            b'f' => self.word("false", Json::Bool),
            b'n' => self.word("null", Json::Null),
            _ => {
                let end = self.rest.iter().position(|c| !b"+-.0123456789eE".contains(c)).unwrap_or(self.rest.len());
                let (number, rest) = self.rest.split_at(end);
                self.rest = rest;
                let number = std::str::from_utf8(number).map_err(|e| e.to_string())?;
                number.parse().map(Json::Number).map_err(|e| format!("{:?}: {}", number, e))
            }
        }
    }
    fn list(&mut self) -> Result<Json> {
        let mut out = Vec::new();
        self.take()?;
        while self.peek()? != b']' {
            out.push(self.value()?);
            if self.peek()? == b',' {
                self.take()?;
            }
        }
        self.take()?;
        Ok(Json::List(out))
    }
    fn map(&mut self) -> Result<Json> {
        let mut out = HashMap::new();
        self.take()?;
        while self.peek()? != b'}' {
            let key = self.string()?;
            self.peek()?;
            self.take()?; // the colon
            out.insert(key, self.value()?);
            if self.peek()? == b',' {
                self.take()?;
            }
        }
        self.take()?;
        Ok(Json::Map(out))
    }
    fn string(&mut self) -> Result<String> {
        let mut out = Vec::new();
        self.take()?;
        loop {
            match self.take()? {
                b'"' => return String::from_utf8(out).map_err(|e| e.to_string()),
                b'\\' => match self.take()? {
                    b'n' => out.push(b'\n'),
                    b't' => out.push(b'\t'),
                    b'u' => {
                        let code = self.rest.get(..4).and_then(|h| std::str::from_utf8(h).ok()).ok_or("not JSON")?;
                        let c = u32::from_str_radix(code, 16).map_err(|e| e.to_string())?;
                        self.rest = &self.rest[4..];
                        // Half of a pair is not a character; none of the texts that matter here has one.
                        out.extend(char::from_u32(c).unwrap_or('?').to_string().bytes());
                    }
                    c => out.push(c),
                },
                c => out.push(c),
            }
        }
    }
}

/// The great-circle distance in kilometres, on a sphere.
fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (lat, lon) = ((b.0 - a.0).to_radians() / 2.0, (b.1 - a.1).to_radians() / 2.0);
    let h = lat.sin().powi(2) + a.0.to_radians().cos() * b.0.to_radians().cos() * lon.sin().powi(2);
    2.0 * 6371.0 * h.sqrt().min(1.0).asin()
}

fn depot(name: &str) -> Result<(f64, f64)> {
    let depots = std::env::var("DEPOTS").unwrap_or_default();
    for d in depots.split_whitespace() {
        if let Some((n, at)) = d.split_once('=') {
            if n == name {
                let (lat, lon) = at.split_once(',').ok_or("DEPOTS is not NAME=LATITUDE,LONGITUDE")?;
                let number = |s: &str| s.parse::<f64>().map_err(|e| format!("DEPOTS: {}: {}", s, e));
                return Ok((number(lat)?, number(lon)?));
            }
        }
    }
    Err(format!("DEPOTS knows no depot {}", name))
}

fn quote(s: &str) -> String {
    format!("\"{}\"", s.replace('\\', "\\\\").replace('"', "\\\""))
}

fn answer(query: &str) -> Result<String> {
    let q = Reader { rest: query.as_bytes() }.value()?;
    let (mut scores, mut out) = (Vec::new(), Vec::new());
    // A service without the label does not care: no score changes.
    if let Some(name) = q.get("labels").get("depot").text() {
        let to = depot(name)?;
        if let Json::List(candidates) = q.get("candidates") {
            for c in candidates {
                let worker = quote(c.get("name").text().ok_or("a candidate has no name")?);
                let at = c.get("location");
                match (at.get("lat").number(), at.get("lon").number()) {
                    // 1 at the depot, 0.5 at a hundred kilometres from it.
                    (Some(lat), Some(lon)) => scores.push(format!("{}:{:.6}", worker, 100.0 / (100.0 + distance((lat, lon), to)))),
                    _ => out.push(format!("{}:{}", worker, quote("it does not say where it is"))),
                }
            }
        }
    }
    Ok(format!("{{\"scores\":{{{}}},\"out\":{{{}}}}}", scores.join(","), out.join(",")))
}

fn main() {
    let mut query = String::new();
    let result = std::io::stdin().read_to_string(&mut query).map_err(|e| e.to_string()).and_then(|_| answer(&query));
    match result {
        Ok(text) => println!("{}", text),
        Err(text) => {
            eprintln!("nearest: {}", text);
            std::process::exit(1);
        }
    }
}
