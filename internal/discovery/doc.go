// Package discovery keeps the API server's discovery and OpenAPI documents, one
// copy for all clients that reach the cluster through the proxy. It answers
// clients as the API server would, and looks resources up for the proxy.
//
// It knows paths, the headers by which clients and the API server agree on a
// representation, and how old an answer may be. It does not read documents,
// except the list of resources of one group version. It does not know which
// client asks: a shared request contains only the path, the query and the
// representation that a client wants, and is sent with the operator's identity.
//
// # How old an answer may be
//
// Age counts from the moment at which the request to the API server began. A
// document answers for [freshFor] and is asked for again after that, with its
// ETag if it has one. After a change of what is served, which
// [Cache.Invalidate] reports, nothing is fresh for [unsettledFor]: every answer
// then comes from a request that began after the client's own. So a client that
// has seen a kind served finds it in the documents, however long it took to
// appear. That a document does not exist is never remembered for clients.
//
// When the API server cannot answer, the last good document stands in for up to
// [keepFor], even in the unsettled time. One broken group has no effect on the
// others, because no document is made from several.
package discovery
