package proxy

import "net/http"

// tellWritten passes the write to Written of the grant. children are the objects that the API
// server has stored, as far as they could be read from the answer.
func (x *exchange) tellWritten(children []Child) {
	if x.s.Written == nil || x.call || !x.info.IsResourceRequest {
		return
	}
	w := Written{Child: x.child("", x.asked), Verb: x.info.Verb, Code: x.code, DryRun: x.dryRun}
	if len(children) == 1 {
		w.Child = children[0]
		w.Unchanged = x.version != "" && w.ResourceVersion == x.version && (w.Verb == "update" || w.Verb == "patch")
		w.Fields = x.fields(w.Name)
	}
	x.s.Written(w)
}

// record records which permissions the exchange needed.
func (x *exchange) record() {
	if x.p.opts.Record == nil || !x.info.IsResourceRequest || x.code == 0 {
		return
	}
	verbs := []string{x.info.Verb}
	switch {
	case isConnection(x.info, "exec", "attach", "portforward") && x.info.Verb != "create":
		// Newer API servers require create for the upgrade of a GET, too.
		verbs = append(verbs, "create")
	case x.code == http.StatusCreated && x.info.Verb != "create":
		verbs = append(verbs, "create") // an apply or a PUT has created the object
	}
	if x.markAfter && x.info.Verb != "patch" {
		verbs = append(verbs, "patch")
	}
	if x.looked {
		verbs = append(verbs, "get")
	}
	for _, verb := range verbs {
		subresource := x.info.Subresource
		if x.looked && verb == "get" {
			subresource = "" // see look
		}
		x.p.opts.Record(Call{
			Verb: verb, Resource: x.gvr(), Subresource: subresource, Namespaced: x.namespace() != "",
			Owner: x.s.Owner.GVK.GroupKind(), Owned: x.marked && x.code < http.StatusMultipleChoices && !x.dryRun,
		})
	}
}
