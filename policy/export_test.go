package policy

// Endpoint lets the external tests, and the fuzzer, at one rule by itself.
var Endpoint = endpoint
