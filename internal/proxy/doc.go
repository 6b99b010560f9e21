// Package proxy is the API proxy, through which runs reach the API server.
//
// Each run has its own token and talks to a server on the loopback interface.
// The token tells the proxy which custom resource the run belongs to. The proxy
// marks the objects that the run creates as owned by that resource. It refuses
// the run's writes as soon as the operator may not lead any more or the resource
// is gone, and serves no request of the run once the run has ended. Requests are
// forwarded with the operator's credentials; identity headers of the client
// (Authorization, Impersonate-*, X-Remote-*) are not forwarded.
//
// Reads are never answered from a copy, except discovery and OpenAPI documents
// (package discovery): a run reads the current state of the API server, and memory
// does not grow with what roles read.
//
// The package does not know what follows from a change of a dependent (a [Tracker]
// does), which replica leads (Options.MayWrite does), or the encodings of objects
// (package objectbody does).
package proxy
