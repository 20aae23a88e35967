# Names for what is done often; each is a plain command. A newcomer needs demo
# and test alone.

GO ?= go

.PHONY: demo test unit real conformance interop browser lint vuln newest counterparts vault faults fuzz soak bench release

demo:       ; $(GO) run ./cmd/demo
test:       ; sh test/run.sh
unit:       ; $(GO) vet ./... && $(GO) test -race ./...
real: counterparts ; $(GO) test -race -count=1 -tags real $$(cat test/real-packages)
conformance: ; sh test/conformance/run.sh
interop:    ; sh test/providers/interop.sh
browser:    ; sh test/browser/install.sh && cd test/browser && $(GO) vet ./... && $(GO) test -race -count=1 ./...
lint:       ; sh test/lint.sh
vuln:       ; sh test/vuln.sh
newest:     ; sh test/newest.sh
counterparts: ; sh test/install.sh
vault:      ; sh test/vault/build.sh
faults: vault ; sh test/faults.sh
fuzz:       ; sh test/fuzz.sh
soak: counterparts ; sh test/soak.sh
bench: vault ; $(GO) run ./bench && $(GO) test -run "^$$" -bench . ./ledger
release:    ; sh deploy/release/release.sh
