package operatorpage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/page"
)

// ask returns a function that asks the API as any client with the token would.
func (s *server) ask(token string) func(context.Context, string, url.Values) (*http.Response, error) {
	return func(ctx context.Context, path string, query url.Values) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Address+api.Root+path+"?"+query.Encode(), nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := s.client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("ask the API: %w", err)
		}
		if resp.StatusCode == http.StatusOK {
			return resp, nil
		}
		defer func() { _ = resp.Body.Close() }() // it was read
		var said metav1.Status
		if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
			return nil, fmt.Errorf("answer of the API: %w", err)
		}
		switch resp.StatusCode {
		case http.StatusNotFound:
			return nil, fmt.Errorf("%s: %w", said.Message, page.ErrNotFound)
		case http.StatusForbidden:
			return nil, fmt.Errorf("%w: %s: open %sNAME/ for the namespace NAME", page.ErrForbidden, said.Message, Namespaces)
		}
		return nil, errors.New(said.Message)
	}
}
