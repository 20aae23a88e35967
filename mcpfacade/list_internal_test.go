package mcpfacade

import (
	"testing"

	"onbehalf.internal/broker/strictjson"
)

// TestUnmirrored: a schema loses what asks for headers, and nothing else of it changes.
func TestUnmirrored(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"object","properties":{"c":{"x-mcp-header":"C","type":"integer"}}}}}`: `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"object","properties":{"c":{"type":"integer"}}}}}`,
		`{"properties":{"x-mcp-header":{"type":"string","default":{"x-mcp-header":1.0}}}}`:                                                                         `{"properties":{"x-mcp-header":{"type":"string","default":{"x-mcp-header":1.0}}}}`,
		`{"type":"object","maximum":12345678901234567890,"\u0061":1e2}`:                                                                                            `{"type":"object","maximum":12345678901234567890,"\u0061":1e2}`,
		`{}`:   `{}`,
		`true`: `true`,
		`{"type":"object","properties":{"a":true}}`: `{"type":"object","properties":{"a":true}}`,
	} {
		if got := string(unmirrored(strictjson.Raw(schema))); got != want {
			t.Errorf("%s became %s, want %s", schema, got, want)
		}
	}
}
