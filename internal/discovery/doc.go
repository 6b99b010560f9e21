// Package discovery keeps the API server's discovery and OpenAPI documents, one
// copy for everybody who reaches the cluster through the proxy. It hands them
// to clients as the API server would, and tells the proxy what a resource is.
//
// It knows paths, the headers by which clients and the API server agree on a
// representation, and how old an answer may be. It does not know what a
// document says, but for the list of resources of one group version; nor who
// asks: a shared request carries no trace of a client but the path, the query
// and the representation that it wants, and goes upstream as the operator.
//
// # How old an answer may be
//
// Age counts from the moment at which the request to the API server began. A
// document answers for [freshFor] and is asked for again after that, with its
// ETag where it has one. Once someone has changed what is served, as
// [Cache.Invalidate] says, nothing is fresh for [unsettledFor]: every answer
// then comes from a request that began after the client's own. So a client that has
// seen a kind served finds it in the documents, however long it took to appear.
// That a document does not exist is never remembered for clients at all.
//
// When the API server cannot answer, the last good document stands in for up to
// [keepFor], in the unsettled time too. One broken group has no effect on the
// others, because no document is made from several.
package discovery
