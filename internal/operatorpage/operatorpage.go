// Package operatorpage serves the page of internal/page on the port of an operator's API. Each
// reader is served with the reader's own token, which a proxy in front of it adds to requests.
//
// It makes no decisions about permissions. It shows the runs that the API shows to the token, and
// reads and changes objects with the token.
package operatorpage

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/page"
	"github.com/rolewright/rolewright/internal/text"
)

// Base is the path of the page for all namespaces, and Namespaces the prefix of the pages for single ones.
const (
	Base       = "/ui/"
	Namespaces = Base + "namespaces/"
)

// Options are the options of [New].
type Options struct {
	API *api.Server
	// Address is where API is served, such as http://127.0.0.1:6791.
	Address string
	// Cluster says how to reach the API server. Its credentials are not used.
	Cluster *rest.Config
	// Kinds returns the kinds whose objects are shown.
	Kinds func() []api.Kind
	// Objects reads and changes objects through the clients that it is given. For kinds that are not
	// watched, the error of clients wraps page.ErrNotFound.
	Objects func(clients func(o history.Object) (dynamic.ResourceInterface, error)) page.Objects
	// Hosts are the hosts that a request may name.
	Hosts []string
	// Actions is true if there are buttons that change objects.
	Actions bool
	Log     logr.Logger
}

type server struct {
	Options
	cluster *rest.Config
	client  *http.Client
	page    *page.Server // for readers that are not known yet
	limits  *limits
}

// timeout limits a request to the API server.
const timeout = 20 * time.Second

// New returns the handler of all paths below [Base].
func New(o Options) http.Handler {
	s := &server{Options: o, cluster: rest.AnonymousClientConfig(o.Cluster), limits: newLimits()}
	s.client = &http.Client{Transport: &http.Transport{DisableCompression: true}} // and no proxy: the API is in this process
	s.cluster.Timeout = timeout
	s.page = page.New(s.pageOptions())
	return page.Guard(s.pageOptions(), http.HandlerFunc(s.serve))
}

// pageOptions are the options that do not depend on the reader.
func (s *server) pageOptions() page.Options {
	o := page.Options{Hosts: s.Hosts, Links: true}
	if s.Actions {
		o.Act = func(context.Context, history.Object, page.Asked) (bool, error) { return false, page.ErrForbidden }
	}
	return o
}

// unauthorized is the answer to a request without a token of the cluster.
const unauthorized = `You are not logged in: %s.

This page is read through a proxy that logs you in and adds your token of the cluster to
each request (Authorization: Bearer TOKEN). Ask the administrators of the operator for
its address, or run "rolewright ui" on your machine.
`

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	user, token, code, err := s.API.Caller(r)
	if err != nil {
		said := err.Error()
		if code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
			said = strings.Replace(unauthorized, "%s", said, 1)
		}
		http.Error(w, said, code)
		return
	}
	o := s.pageOptions()
	read := &page.Remote{Ask: s.ask(token)} //nolint:bodyclose // page.Remote closes it
	o.Base, o.Source, o.Flags = Base, read, "-A"
	if name, _, is := strings.Cut(strings.TrimPrefix(r.URL.Path, Namespaces), "/"); is && strings.HasPrefix(r.URL.Path, Namespaces) {
		if len(validation.IsDNS1123Label(name)) > 0 {
			http.NotFound(w, r)
			return
		}
		o.Base, o.Flags, read.Namespace = Namespaces+name+"/", "-n "+name, name
	}
	objects := s.objects(token)
	read.Get = objects.Get
	if s.Actions {
		o.Act = func(ctx context.Context, on history.Object, asked page.Asked) (bool, error) {
			// An action that has begun is completed, and its result logged, even if the reader goes away.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
			defer cancel()
			changed, err := objects.Act(ctx, on, asked)
			failed := ""
			if err != nil {
				failed = logged(err.Error())
			}
			s.Log.Info("A reader of the page has asked for an action", "user", logged(user), "action", asked.Do, "kind", logged(on.Kind), "group", logged(on.Group),
				"namespace", logged(on.Namespace), "name", logged(on.Name), "changed", changed, "failed", failed)
			return changed, err
		}
	}
	s.limits.serve(user, s.page.With(o), w, r)
}

// logged returns a name in a form for the log, shortened and without control characters.
func logged(s string) string {
	return text.Clip(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || text.Unwanted(r) {
			return -1
		}
		return r
	}, s), validation.DNS1123SubdomainMaxLength)
}

// objects gives access to the objects of watched kinds with the permissions of a token.
func (s *server) objects(token string) page.Objects {
	return s.Objects(func(o history.Object) (dynamic.ResourceInterface, error) {
		kinds := s.Kinds()
		at := slices.IndexFunc(kinds, func(k api.Kind) bool { return k.Group == o.Group && k.Kind == o.Kind })
		if at < 0 {
			return nil, page.ErrNotFound
		}
		config := rest.CopyConfig(s.cluster)
		config.BearerToken = token
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		k := kinds[at]
		objects := client.Resource(k.GVR())
		if k.Namespaced {
			return objects.Namespace(o.Namespace), nil
		}
		return objects, nil
	})
}
