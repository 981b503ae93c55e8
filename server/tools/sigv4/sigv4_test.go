// Package sigv4 compares the tokens that Weir signs for caches of AWS with those of the
// signer in AWS's own SDK.
package sigv4

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/weirlimit/weir/server/internal/store"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	text := func(alphabet string, most int) string {
		b := make([]byte, 1+rng.IntN(most))
		for i := range b {
			b[i] = alphabet[rng.IntN(len(alphabet))]
		}
		return string(b)
	}
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	for range 1000 {
		kind := []string{"elasticache", "elasticache-serverless", "memorydb"}[rng.IntN(3)]
		i, err := store.ParseIAM(kind + ":" + text(letters+"-ABC", 40))
		if err != nil {
			t.Fatal(err)
		}
		i.User, i.Region = text(letters+"-_.~+/= &%é", 20), "eu-west-1"
		keys := store.Keys{ID: text(letters, 20), Secret: text(letters+"+/", 40)}
		if rng.IntN(2) == 0 {
			keys.Session = text(letters+"+/= ", 300)
		}
		at := time.Unix(rng.Int64N(4e9), 0)
		if got, want := i.Token(keys, at), signed(t, i, keys, at); got != want {
			t.Fatalf("%+v %+v %v\ngot  %s\nwant %s", i, keys, at, got, want)
		}
	}
}

// signed is the token as the documentation of AWS makes it, with the SDK.
func signed(t *testing.T, i store.IAM, keys store.Keys, at time.Time) string {
	t.Helper()
	query := url.Values{"Action": {"connect"}, "User": {i.User}, "X-Amz-Expires": {"900"}}
	if i.Serverless {
		query.Set("ResourceType", "ServerlessCache")
	}
	req, err := http.NewRequest(http.MethodGet, "http://"+i.Cache+"/?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	nothing := sha256.Sum256(nil)
	signed, _, err := v4.NewSigner().PresignHTTP(t.Context(),
		aws.Credentials{AccessKeyID: keys.ID, SecretAccessKey: keys.Secret, SessionToken: keys.Session},
		req, hex.EncodeToString(nothing[:]), i.Service, i.Region, at)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(signed, "http://")
}
