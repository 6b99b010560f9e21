package proxy

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusal is the error for a request that the proxy does not forward. It is answered
// in the API server's format, so that clients show the message.
type refusal struct {
	code    int
	reason  metav1.StatusReason
	message string
	// notLeading is true for a write that another replica may forward.
	notLeading bool
}

func (r *refusal) Error() string { return r.message }

func refuse(code int, reason metav1.StatusReason, message string) *refusal {
	return &refusal{code: code, reason: reason, message: message}
}

func (r *refusal) write(w http.ResponseWriter) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(r.code), Reason: r.reason, Message: r.message,
	}
	if r.code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	}
	body, err := json.Marshal(status)
	if err != nil {
		body = []byte(r.message)
	}
	body = append(body, '\n') // as in answers of the API server
	w.Header().Set("Content-Type", "application/json")
	if r.code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(r.code)
	_, _ = w.Write(body) // a client that is gone needs no answer
}
