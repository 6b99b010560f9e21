// Package proxy is the way of runs to the API server.
//
// A run talks to a server on the loopback interface with a token of its own.
// The proxy knows by the token which custom resource the run is made for: the
// objects that the run creates are marked as that resource's, its writes are
// refused as soon as the operator may not lead any more or the resource is
// gone, and nothing of the run is served once it has ended. Requests go on with
// the operator's credentials; what they say of themselves (Authorization,
// Impersonate-*, X-Remote-*) does not.
//
// Reads are never answered from a copy, discovery and OpenAPI documents
// excepted (package discovery): what a run reads is what the API server says
// now, and memory does not follow what roles read.
//
// The package does not know what becomes of a change of a dependent (a
// [Tracker] does), who leads (Options.MayWrite does), nor the encodings of
// objects (package objectbody does).
package proxy
