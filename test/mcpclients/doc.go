// Package mcpclients holds the façade against clients that nobody here wrote: on the official
// libraries in TypeScript and Python, as two people, in the eras that each speaks; and against whole
// sign-ins, by those, the one in Go and the Inspector, at a server that nobody here wrote either. With
// a token in its hand the one in Go is what the tests of package mcpfacade speak by. `sh test/mcpclients/install.sh` once; they run with the build tag real.
package mcpclients
