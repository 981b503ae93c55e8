package plainhttp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"testing"
)

type derivedKey struct{}

// TestDerive gives each request the context of its own value, and otherwise the request itself, on
// both ways. A connection of a Server makes a context when the value is another one.
func TestDerive(t *testing.T) {
	t.Parallel()
	values := map[string]*string{"a": new(string), "b": new(string)}
	*values["a"], *values["b"] = "a", "b"
	made := 0 // each way has one connection, used in turn
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := values[r.Header.Get("V")]
		derive := func(ctx context.Context, v *string) context.Context {
			made++
			return context.WithValue(ctx, derivedKey{}, v)
		}
		got := Derive(w, r, v, derive)
		again := Derive(w, got, v, derive) // no request of the connection
		made--
		want := r.WithContext(got.Context())
		if !reflect.DeepEqual(got, want) || again == got || again.Context().Value(derivedKey{}) != v {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if v, _ := got.Context().Value(derivedKey{}).(*string); r.Context().Value(derivedKey{}) != nil || got.Context().Done() == nil || got == r {
			t.Errorf("the context of %v", v)
		}
		body, _ := io.ReadAll(got.Body)
		fmt.Fprintf(w, "%s %s %v", got.RequestURI, body, *got.Context().Value(derivedKey{}).(*string))
	})
	for through, wantMade := range map[bool]int{true: 3, false: 6} {
		address := serve(t, handler, through)
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		made = 0
		in := bufio.NewReader(conn)
		for i, v := range []string{"a", "a", "b", "b", "b", "a"} {
			request, want := get(fmt.Sprintf("/v1/auth?n=%d", i), "V: "+v), fmt.Sprintf("/v1/auth?n=%d  %s", i, v)
			if i%2 == 1 {
				request, want = take("{}", "Content-Length: 2", "V: "+v), "/v1/take {} "+v
			}
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			got, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(got.Body); err != nil || string(body) != want {
				t.Errorf("got %q, %v, want %q", body, err, want)
			}
		}
		if made != wantMade {
			t.Errorf("through %v: %d contexts, want %d", through, made, wantMade)
		}
	}
}
