//! The `longhaul` commands in a shell script: enough of the shell's grammar for what documents say.

/// The arguments of each call of `longhaul`, up to `--`. A call in the command behind `--` is one of its own.
pub(crate) fn longhaul_commands(script: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for command in commands(script) {
        let calls = command.split(|word| word == "--");
        found.extend(calls.filter_map(|words| {
            let at = words.iter().position(|word| word == "longhaul")?;
            Some(words[at + 1..].to_vec())
        }));
    }
    found
}

/// The words of each simple command: quotes are taken off, comments, redirections and here-documents left out.
fn commands(script: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut lines = script.lines();
    while let Some(line) = lines.next() {
        let mut line = line.to_owned();
        while let Some(begun) = line.strip_suffix('\\') {
            line = format!("{begun}{}", lines.next().unwrap_or_default());
        }
        for word in words(&line) {
            match word {
                Word::Plain(text) => commands.last_mut().expect("there is always one").push(text),
                Word::Separator => commands.push(Vec::new()),
            }
        }
        commands.push(Vec::new());
        if let Some((_, end)) = line.split_once("<<") {
            let end = end.trim_matches(|c: char| c == '\'' || c == '"' || c == ' ');
            lines.by_ref().find(|line| *line == end);
        }
    }
    commands.retain(|words| !words.is_empty());
    commands
}

enum Word {
    Plain(String),
    Separator,
}

fn words(line: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return words };
        match first {
            '#' => return words,
            ';' | '|' | '&' | '(' | ')' => {
                words.push(Word::Separator);
                rest = &rest[1..];
            }
            _ => {
                let (text, after) = word(rest);
                rest = after;
                if text.contains(['>', '<']) && !text.starts_with(['\'', '"']) {
                    // `> file`: the file's name belongs to it. `2>&1`, `>file` are whole.
                    if text.ends_with(['>', '<']) {
                        rest = word(rest.trim_start()).1;
                    }
                } else {
                    words.push(Word::Plain(text.chars().filter(|c| !matches!(c, '\'' | '"')).collect()));
                }
            }
        }
    }
}

/// The first word, with its quotes, and what follows it.
fn word(text: &str) -> (&str, &str) {
    let mut quote = None;
    let redirects = |at: usize| text[..at].ends_with('>');
    let end = text.char_indices().find(|(at, c)| match quote {
        Some(open) => {
            if *c == open {
                quote = None;
            }
            false
        }
        None if matches!(c, '\'' | '"') => {
            quote = Some(*c);
            false
        }
        None => c.is_whitespace() || matches!(c, ';' | '|' | ')') || (*c == '&' && !redirects(*at)),
    });
    text.split_at(end.map_or(text.len(), |(at, _)| at))
}

#[test]
fn commands_are_found_in_scripts() {
    let script = "sudo longhaul lab set 'forward.loss=every(30000)' > out 2>&1 && longhaul lab down # longhaul no\n\
        cat > x.toml <<'END'\nlonghaul no\nEND\n\
        longhaul lab exec client -- longhaul udp server \\\n  -b 1M | tail &\n";
    let expected =
        ["lab set forward.loss=every(30000)", "lab down", "lab exec client", "udp server -b 1M"].map(ToOwned::to_owned);
    let found: Vec<String> = longhaul_commands(script).iter().map(|words| words.join(" ")).collect();
    assert_eq!(found, expected);
}
