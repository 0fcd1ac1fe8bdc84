# Short names for what is done often. `just` lists them.

default:
    @just --list

# The program, optimized
build:
    cargo build --release -p frontdesk

# Format, repository rules and lints: what to run before a commit
check: tidy
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Everything; `just test quick` leaves out gateways and browser
test *what:
    ./scripts/test {{what}}

# Only the runs against real gateways
hermes:
    ./scripts/test hermes

# Only the chat page in a real browser
browser:
    ./scripts/test browser

# Only the Skillscript adapter
adapter:
    ./scripts/test adapter

# Measure this machine, e.g. `just bench relay`
bench *what:
    cargo run --release -p frontdesk -- bench {{what}}

# Fuzz every parser that unauthenticated clients reach, ten minutes each; `just fuzz token` runs one of them
fuzz *target:
    FUZZ_SECONDS="${FUZZ_SECONDS:-600}" FUZZ_SEED="${FUZZ_SEED:-$(date +%s)}" \
        cargo test -p frontdesk-testkit -p frontdesk-platforms --test 'fuzz*' -- --nocapture {{target}}

# The repository rules
tidy:
    cargo run --quiet -p xtask -- tidy

# A desk, an example agent and a chat page
demo:
    cargo run --release -p frontdesk -- demo
