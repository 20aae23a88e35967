package broker

import (
	"net/http"

	"onbehalf.internal/broker/mcpfacade"
)

// withFacade has MCP clients come to /mcp/, where the configuration lets them, and everybody
// else to next.
func (b *Broker) withFacade(next http.Handler) http.Handler {
	s := b.policy.Current()
	if s.MCP == nil {
		return next
	}
	facade := mcpfacade.New(mcpfacade.Config{Runner: b.runner, Policy: b.policy, Origin: s.MCP.Origin, Version: Version, Log: b.log, Now: b.now})
	route := func(r *http.Request) string { return mcpfacade.Route(r.URL.Path) }
	counted := b.metrics.Counted(facade, route)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route(r) != "" {
			counted.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
