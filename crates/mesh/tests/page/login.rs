//! Who may read, and bounds of what strangers can do.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::common::{Coordinator, Folder, agent, hub, names, results};

fn coordinator(folder: &Folder, options: &[&str]) -> Coordinator {
    let sites = names(&["ithaca", "geneva"]);
    let hub = hub(folder, &sites, &results(&sites, 3, |_, _, _| 1));
    Coordinator::start(&hub, options)
}

#[test]
fn nobody_reads_without_the_token() {
    let folder = Folder::new("login");
    let coordinator = coordinator(&folder, &[]);
    let file = folder.file("hub/http-token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // What it says goes into a log, which others may read: the name of the file alone.
    assert_eq!(coordinator.token.len(), 64);
    assert!(coordinator.said.contains("http-token") && !coordinator.said.contains(&coordinator.token));
    let wrong = format!("Bearer {}", "0".repeat(64));
    let cookie = format!("longhaul_mesh={}", coordinator.token);
    let (bearer, cookies) = ([wrong.as_str(), "Bearer "], ["longhaul_mesh=", cookie.as_str()]);
    let wrong = bearer.map(|value| ("authorization", value)).into_iter().chain(cookies.map(|value| ("cookie", value)));
    let wrong: Vec<[(&str, &str); 1]> = wrong.map(|header| [header]).collect();
    for headers in wrong.iter().map(|headers| &headers[..]).chain([&[][..]]) {
        let paths = [
            "mesh",
            "sites",
            "pairs",
            "pairs/ithaca/geneva",
            "pairs/ithaca/geneva/tests",
            "pairs?metric=rtt",
            "tests/00000000000000000000000000000001",
            "losses",
            "alarms",
            "schedule",
            "openapi.json",
            "no",
        ];
        for path in paths.iter().map(|path| format!("/api/v1/{path}")).chain(["/metrics".to_owned(), "/".to_owned()]) {
            let (status, text) = coordinator.get_with(&path, headers);
            assert_eq!(status, 401, "{path} {headers:?}");
            assert!(!text.contains("ithaca") && !text.contains("research"), "{path}: {text}");
        }
    }
    assert_eq!(coordinator.get("/api/v1/mesh").0, 200);
    // A second start has the same token and does not speak of it again.
    drop(coordinator);
    let again = Coordinator::start(&folder.file("hub"), &[]);
    assert!(!again.said.contains("http-token"), "{}", again.said);
    assert_eq!(again.get("/metrics").0, 200);
}

/// Over plain http a page of another origin can have its name lead to this host, and read the answers as its own.
#[test]
fn a_public_page_answers_to_its_address_alone() {
    let folder = Folder::new("rebinding");
    let coordinator = coordinator(&folder, &["--public"]);
    let asked = |host: &str| coordinator.get_with("/api/v1/mesh", &[("host", host)]).0;
    assert_eq!((asked("127.0.0.1:1"), asked("localhost"), asked("evil.example:8080")), (200, 200, 401));
    let (status, text) = coordinator.get_with("/", &[("host", "evil.example")]);
    assert!(status == 401 && !text.contains("ithaca"), "{text}");
}

#[test]
fn a_browser_logs_in_and_out() {
    let folder = Folder::new("cookie");
    let coordinator = coordinator(&folder, &[]);
    let post = |path: &str, body: &str, cookie: &str| {
        let request = agent().post(format!("{}{path}", coordinator.address)).header("cookie", cookie);
        let answer = request.content_type("application/x-www-form-urlencoded").send(body).unwrap();
        let cookie = answer.headers().get("set-cookie").map(|value| value.to_str().unwrap().to_owned());
        (answer.status().as_u16(), cookie)
    };
    assert_eq!(post("/login", "token=00", ""), (401, None));
    assert_eq!(post("/login", "", ""), (401, None));
    let (status, cookie) = post("/login", &format!("token={}", coordinator.token), "");
    let cookie = cookie.unwrap();
    assert_eq!(status, 303);
    assert!(cookie.contains("; HttpOnly; SameSite=Strict") && !cookie.contains(&coordinator.token), "{cookie}");
    let own = cookie.split(';').next().unwrap();
    assert_eq!(coordinator.get_with("/api/v1/mesh", &[("cookie", &format!("other=1; {own}"))]).0, 200);
    // A page of another port of this host, for which a browser sends it all the same.
    for (from, status) in [("same-origin", 200), ("none", 200), ("same-site", 401), ("cross-site", 401)] {
        let headers = [("cookie", own), ("sec-fetch-site", from)];
        assert_eq!(coordinator.get_with("/api/v1/mesh", &headers).0, status, "{from}");
    }
    // A page of another origin, whose form sends no cookie, ends nobody's session.
    assert_eq!(post("/logout", "", ""), (303, None));
    assert_eq!(post("/logout", "", own).0, 303);
    assert_eq!(coordinator.get_with("/api/v1/mesh", &[("cookie", own)]).0, 401);
    // A body that is no token is not read to its end.
    assert_eq!(post("/login", &"x".repeat(100_000), "").0, 413);
}

#[test]
fn public_is_read_by_everybody() {
    let folder = Folder::new("public");
    let coordinator = coordinator(&folder, &["--public"]);
    let (status, page) = coordinator.get_with("/", &[]);
    assert!(status == 200 && !page.contains("password"), "{page}");
    assert_eq!(coordinator.get_with("/api/v1/pairs", &[]).0, 200);
    let answer = agent().get(format!("{}/api/v1/mesh", coordinator.address)).call().unwrap();
    let policy = answer.headers().get("content-security-policy").unwrap().to_str().unwrap();
    assert!(policy.contains("default-src 'none'; script-src 'self';"), "{policy}");
    // It is for reading: nothing is deleted or written.
    let answer = agent().delete(format!("{}/api/v1/mesh", coordinator.address)).call().unwrap();
    assert_eq!(answer.status().as_u16(), 405);
}

fn connect(coordinator: &Coordinator) -> TcpStream {
    let stream = TcpStream::connect(coordinator.address.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    stream
}

#[test]
fn strangers_cannot_hold_or_fill_it() {
    let folder = Folder::new("strangers");
    let coordinator = coordinator(&folder, &["--public"]);
    // Who says nothing, and who says half a question, is gone within its time; meanwhile others are answered.
    let mut silent: Vec<TcpStream> = (0..100).map(|_| connect(&coordinator)).collect();
    for stream in silent.iter_mut().step_by(2) {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nX: ").unwrap();
    }
    assert_eq!(coordinator.get_with("/api/v1/mesh", &[]).0, 200);
    // Headers without end.
    let mut endless = connect(&coordinator);
    endless.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap();
    let mut sent = 0;
    while sent < 10_000_000 && endless.write_all(&[b'x'; 4096]).is_ok() {
        sent += 4096;
    }
    assert!(sent < 9_000_000, "{sent} bytes of headers were taken");
    let mut many = connect(&coordinator);
    let headers: String = (0..100).map(|number| format!("h{number}: 1\r\n")).collect();
    many.write_all(format!("GET / HTTP/1.1\r\nHost: x\r\n{headers}\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    many.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 431") || text.starts_with("HTTP/1.1 400"), "{text}");
    // Garbage.
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET http://[::1 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/9.9\r\n\r\n",
    ] {
        let mut stream = connect(&coordinator);
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = stream.read_to_string(&mut String::new());
    }
    let begin = Instant::now();
    for stream in &mut silent {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    // More connections than it has places for: whoever comes next is answered all the same, as the oldest is closed.
    let mut full: Vec<TcpStream> = (0..300).map(|_| connect(&coordinator)).collect();
    assert_eq!(coordinator.get_with("/api/v1/mesh", &[]).0, 200);
    let _ = full[0].read_to_end(&mut Vec::new());
    assert!(full[299].set_nonblocking(true).is_ok() && full[299].read(&mut [0]).is_err(), "the newest is closed");
    drop(full);
    assert_eq!(coordinator.get_with("/api/v1/mesh", &[]).0, 200);
}
