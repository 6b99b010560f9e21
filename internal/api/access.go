package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
)

// access asks the API server who a client is, and what it may read.
type access struct {
	client kubernetes.Interface
	// users has the users by the hash of their token.
	users *cache.LRUExpireCache
	// wrong has tokens that the API server does not know: separately, so that they do not displace known ones.
	wrong *cache.LRUExpireCache
	// may has answers by question.
	may *cache.LRUExpireCache
}

// Answers of the API server are kept for answerAge. maxAnswers limits how many of each sort are kept.
const (
	answerAge  = 10 * time.Second
	maxAnswers = 10_000
)

// question asks whether the client with a token may get objects: all of a resource if
// namespace is empty, all in a namespace if name is empty.
type question struct {
	token                            [sha256.Size]byte
	group, resource, namespace, name string
}

// clock is a [cache.Clock].
type clock func() time.Time

// Now implements [cache.Clock].
func (c clock) Now() time.Time { return c() }

func newAccess(client kubernetes.Interface, now clock) *access {
	answers := func() *cache.LRUExpireCache { return cache.NewLRUExpireCacheWithClock(maxAnswers, now) }
	return &access{client: client, users: answers(), wrong: answers(), may: answers()}
}

// caller is the sender of a request.
type caller struct {
	token [sha256.Size]byte
	user  authenticationv1.UserInfo
}

// authenticate finds out who has sent r. The error is for the client.
func (a *access) authenticate(r *http.Request) (caller, *problem) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return caller{}, &problem{http.StatusUnauthorized, "send a token of the cluster: Authorization: Bearer TOKEN"}
	}
	c := caller{token: sha256.Sum256([]byte(token))}
	if user, known := a.users.Get(c.token); known {
		c.user, _ = user.(authenticationv1.UserInfo)
		return c, nil
	}
	unknown := &problem{http.StatusUnauthorized, "the API server does not know the token"}
	if _, known := a.wrong.Get(c.token); known {
		return caller{}, unknown
	}
	review, err := a.client.AuthenticationV1().TokenReviews().Create(r.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		// The API server's message is not for a client without a known token.
		return caller{}, &problem{http.StatusServiceUnavailable, fmt.Sprintf("the operator cannot ask the API server who you are (create on tokenreviews): %s", apierrors.ReasonForError(err))}
	}
	if !review.Status.Authenticated {
		a.wrong.Add(c.token, struct{}{}, answerAge)
		return caller{}, unknown
	}
	c.user = review.Status.User
	a.users.Add(c.token, c.user, answerAge)
	return c, nil
}

// Caller returns the name of the user who has sent r, and the token that proves it. If err is not
// nil, code is the HTTP status of the answer.
func (s *Server) Caller(r *http.Request) (user, token string, code int, err error) {
	c, bad := s.access.authenticate(r)
	if bad != nil {
		return "", "", bad.code, errors.New(bad.message)
	}
	_, token, _ = strings.Cut(r.Header.Get("Authorization"), " ")
	return c.user.Username, token, http.StatusOK, nil
}

// mayGet reports whether a caller may get an object. An empty name means all objects in a
// namespace; if namespace is empty, too, all objects in the cluster.
func (a *access) mayGet(ctx context.Context, c caller, k Kind, namespace, name string) (bool, *problem) {
	q := question{c.token, k.Group, k.Resource, namespace, name}
	if may, known := a.may.Get(q); known {
		return may == true, nil
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range c.user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: c.user.Username, UID: c.user.UID, Groups: c.user.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "get", Group: k.Group, Version: k.Version, Resource: k.Resource, Namespace: namespace, Name: name,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, unavailable("ask what the client may read (create on subjectaccessreviews)", err)
	}
	a.may.Add(q, review.Status.Allowed, answerAge)
	return review.Status.Allowed, nil
}

// problem is an HTTP answer that says what is wrong.
type problem struct {
	code    int
	message string
}

func unavailable(what string, err error) *problem {
	return &problem{http.StatusServiceUnavailable, fmt.Sprintf("%s: %v", what, err)}
}
