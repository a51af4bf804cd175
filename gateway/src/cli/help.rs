//! What `--help` says behind the flags: examples that work when pasted. Texts only.

pub(super) const ROOT: &str = "\
Start here:
  bh-gateway dev                                try it with the built-in demo app
  bh-gateway dev --app http://127.0.0.1:3000    put your app behind a tunnel on this machine
  bh-gateway token new --agent laptop --app demo
  bh-gateway check --config gateway.toml
  bh-gateway serve --config gateway.toml

Exit codes: 0 all went well, 1 failed while running, 2 wrong command line or configuration.";

pub(super) const DEV: &str = "\
Examples:
  bh-gateway dev
  bh-gateway dev --app http://127.0.0.1:3000 --name shop
  bh-gateway dev --app 3000 --first-frame-window 2s --hold 0s
  bh-gateway dev --public 127.0.0.1:0 --tunnel 127.0.0.1:0 --admin 127.0.0.1:0 --json

The app answers at http://NAME.localhost:PORT and, being the only one, at the bare address too.
When everything listens, one line on the output stream begins with `ready ` (with --json: an
object whose `ready` is true). Port 0 takes any free port. Hints go to the error stream, among
them the command by which another agent joins.";

pub(super) const SERVE: &str = "\
Examples:
  bh-gateway check --config gateway.toml && bh-gateway serve --config gateway.toml
  bh-gateway serve --config gateway.toml --log text --log-level debug

A small gateway.toml:
  [public]
  domain = \"apps.example.com\"
  tls = [{ cert = \"fullchain.pem\", key = \"privkey.pem\" }]
  [[agent]]            # printed by `bh-gateway token new`
  id = \"laptop\"
  keys = [{ id = \"…\", hash = \"blake3:…\" }]
  apps = [\"demo\"]
  [[app]]
  name = \"demo\"        # answers at https://demo.apps.example.com:8443

SIGTERM drains: new work is refused, running work is finished. A second one forces the end.";

pub(super) const CHECK: &str = "\
Example:
  bh-gateway check --config gateway.toml

Nothing is started. Every mistake is one line: file, line, key, what is wrong, how to mend it.
Exit code 0 means that `serve` would accept the file.";

pub(super) const TOKEN: &str = "\
Examples:
  bh-gateway token new --agent laptop --app demo > token.txt
  bh-gateway token new --agent ci --app 'preview-*' --app docs --expires 90d

The token goes to the output stream, once; what to paste into the gateway's configuration goes to
the error stream. The gateway keeps only the hash. To rotate, add the new key beside the old one,
give the agent the new token, then remove the old key.";

pub(super) const CODES: &str = "\
Examples:
  bh-gateway codes
  bh-gateway codes BH_APP_TIMEOUT
  bh-gateway codes --json

`read` and `write` say what a caller may do: safe, after_fix, verify_first, never_automatic. An
answer may carry better evidence than its code's row, never worse.";

pub(super) const COMPLETIONS: &str = "\
Examples:
  bh-gateway completions bash > /etc/bash_completion.d/bh-gateway
  bh-gateway completions fish > ~/.config/fish/completions/bh-gateway.fish";

pub(super) const MAN: &str = "\
Example:
  bh-gateway man /usr/local/share/man/man1";
