// Package servers holds tests of the MCP client against servers that nobody
// here wrote, with the build tag real. What they do differently from each
// other stands in its tables.
package servers
