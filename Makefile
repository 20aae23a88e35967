# Names for what is done often. Each target is a plain command; read it here.
# demo and test are all that a newcomer needs.

GO    ?= go
CACHE ?= $(if $(BROKER_CACHE),$(BROKER_CACHE),$(HOME)/.cache/onbehalf-broker)

.PHONY: demo test unit real lint vuln vault fuzz

demo:        ; $(GO) run ./cmd/demo
test: vault  ; sh test/run.sh
unit:        ; $(GO) vet ./... && $(GO) test -race ./...
real: vault  ; $(GO) test -race -count=1 -tags realvault ./vault/... ./deploy/... ./test/e2e/...
lint:        ; sh test/lint.sh
vuln:        ; sh test/vuln.sh
vault:       ; sh test/vault/build.sh
fuzz:        ; sh test/fuzz.sh
