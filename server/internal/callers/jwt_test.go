package callers

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir"
)

// An issuer signs tokens, with a key for each algorithm.
type issuer struct {
	rsa *rsa.PrivateKey
	ec  *ecdsa.PrivateKey
	ed  ed25519.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	var i issuer
	var errs [3]error
	i.rsa, errs[0] = rsa.GenerateKey(rand.Reader, 2048)
	i.ec, errs[1] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, i.ed, errs[2] = ed25519.GenerateKey(rand.Reader)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return &i
}

// jwks returns the public keys, each with a kid that is its algorithm and what is given.
func (i *issuer) jwks(generation string) []byte {
	number := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	x, y := make([]byte, 32), make([]byte, 32)
	point, err := i.ec.PublicKey.Bytes()
	if err != nil {
		panic(err)
	}
	copy(x, point[1:33])
	copy(y, point[33:])
	text, err := json.Marshal(map[string]any{"keys": []map[string]string{
		{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "RS256" + generation, "n": number(i.rsa.N), "e": number(big.NewInt(int64(i.rsa.E)))},
		{"kty": "EC", "crv": "P-256", "kid": "ES256" + generation, "x": base64.RawURLEncoding.EncodeToString(x), "y": base64.RawURLEncoding.EncodeToString(y)},
		{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": "EdDSA" + generation, "x": base64.RawURLEncoding.EncodeToString(i.ed.Public().(ed25519.PublicKey))},
		{"kty": "EC", "crv": "secp256k1", "kid": "strange", "x": "AA", "y": "AA"},
		{"kty": "oct", "alg": "HS256", "kid": "shared", "k": "c2VjcmV0"},
		{"kty": "RSA", "use": "enc", "kid": "enc" + generation, "n": number(i.rsa.N), "e": number(big.NewInt(int64(i.rsa.E)))},
	}})
	if err != nil {
		panic(err)
	}
	return text
}

// claims are those of a good token, with changes; nil removes one.
func claims(changes map[string]any) jwt.MapClaims {
	all := jwt.MapClaims{"iss": "https://issuer", "aud": []string{"other", "weir"}, "sub": "ann", "dept": "web", "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range changes {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return all
}

func sign(t *testing.T, method jwt.SigningMethod, key any, kid string, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, c)
	if kid != "" {
		token.Header["kid"] = kid
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// fromFile returns who checks tokens by keys in a file.
func fromFile(t *testing.T, keys []byte) *JWT {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(file, keys, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := NewJWT(JWTOptions{Keys: file, Issuer: "https://issuer", Audience: "weir", Labels: "user=sub,team=dept"})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestJWT wants tokens taken that are good, and every other refused with what was expected, but
// without a part of it.
func TestJWT(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	j := fromFile(t, i.jwks(""))
	der, err := x509.MarshalPKIXPublicKey(&i.rsa.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	other := newIssuer(t)
	rs := func(changes map[string]any) string {
		return sign(t, jwt.SigningMethodRS256, i.rsa, "RS256", claims(changes))
	}
	good := rs(nil)
	part := strings.Split(good, ".")
	ann := "[{user ann} {team web}]"
	for name, test := range map[string]struct{ token, want string }{
		"RS256":                 {good, ann},
		"ES256":                 {sign(t, jwt.SigningMethodES256, i.ec, "ES256", claims(nil)), ann},
		"EdDSA":                 {sign(t, jwt.SigningMethodEdDSA, i.ed, "EdDSA", claims(nil)), ann},
		"one audience":          {rs(map[string]any{"aud": "weir"}), ann},
		"clocks apart":          {rs(map[string]any{"exp": time.Now().Add(-10 * time.Second).Unix()}), ann},
		"none":                  {sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "RS256", claims(nil)), "the token's algorithm is not taken: want RS256, ES256, EdDSA"},
		"the public key as HS":  {sign(t, jwt.SigningMethodHS256, public, "RS256", claims(nil)), "the token's algorithm is not taken: want RS256, ES256, EdDSA"},
		"the raw key as HS":     {sign(t, jwt.SigningMethodHS256, der, "RS256", claims(nil)), "the token's algorithm is not taken"},
		"RS512":                 {sign(t, jwt.SigningMethodRS512, i.rsa, "RS256", claims(nil)), "the token's algorithm is not taken"},
		"PS256":                 {sign(t, jwt.SigningMethodPS256, i.rsa, "RS256", claims(nil)), "the token's algorithm is not taken"},
		"a key of another kind": {sign(t, jwt.SigningMethodES256, i.ec, "EdDSA", claims(nil)), "the token's key is not one for its algorithm"},
		"RSA by a key of EC":    {sign(t, jwt.SigningMethodRS256, i.rsa, "ES256", claims(nil)), "the token's signature is wrong"},
		"a key to encrypt":      {sign(t, jwt.SigningMethodRS256, i.rsa, "enc", claims(nil)), "the token's key is not one for its algorithm"},
		"another signer":        {sign(t, jwt.SigningMethodRS256, other.rsa, "RS256", claims(nil)), "the token's signature is wrong: want one by the key that it names"},
		"other claims":          {part[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"bo"}`)) + "." + part[2], "the token's signature is wrong"},
		"no signature":          {part[0] + "." + part[1] + ".", "the token's signature is wrong"},
		"an unknown key":        {sign(t, jwt.SigningMethodRS256, i.rsa, "new", claims(nil)), "no key of the issuer has the token's kid"},
		"a shared secret":       {sign(t, jwt.SigningMethodHS256, []byte("secret"), "shared", claims(nil)), "the token's algorithm is not taken"},
		"no kid":                {sign(t, jwt.SigningMethodRS256, i.rsa, "", claims(nil)), "the token names no key: want a kid in its header"},
		"expired":               {rs(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), "the token has expired: want an exp that is not over"},
		"no exp":                {rs(map[string]any{"exp": nil}), "want exp, iss and aud"},
		"exp is a text":         {rs(map[string]any{"exp": "tomorrow"}), "want exp, iss and aud"},
		"too early":             {rs(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), "the token is not valid yet: want an nbf that has come"},
		"another issuer":        {rs(map[string]any{"iss": "https://stranger"}), `the token is of another issuer: want the iss "https://issuer"`},
		"no issuer":             {rs(map[string]any{"iss": nil}), "want exp, iss and aud"},
		"another audience":      {rs(map[string]any{"aud": "shop"}), `the token is for another audience: want the aud "weir"`},
		"no audience":           {rs(map[string]any{"aud": nil}), "want exp, iss and aud"},
		"no label":              {rs(map[string]any{"dept": nil}), `the claim "dept" of the token is no label: want 1 … 256 bytes`},
		"a list of labels":      {rs(map[string]any{"dept": []string{"web"}}), `the claim "dept" of the token is no label`},
		"a control character":   {rs(map[string]any{"dept": "web\x1b[2J"}), `the claim "dept" of the token is no label`},
		"a long label":          {rs(map[string]any{"sub": strings.Repeat("a", 257)}), `the claim "sub" of the token is no label`},
		"8 KiB":                 {rs(map[string]any{"pad": strings.Repeat("x", 5<<10)}), ann},
		"9 KiB":                 {rs(map[string]any{"pad": strings.Repeat("x", 6<<10+512)}), "the token is too long: want at most 8192 bytes"},
		"an API key":            {"sk-0123456789abcdef", "the token is no JWT: want three parts in base64url with dots between them"},
		"no base64":             {"a.b.c", "the token is no JWT"},
		"padded":                {part[0] + "=." + part[1] + "." + part[2], "the token is no JWT"},
		"nothing":               {"..", "the token is no JWT"},
	} {
		labels, err := j.labelsOf(test.token)
		got := fmt.Sprint(labels)
		if refused := new(RefusedError); errors.As(err, &refused) {
			got = refused.Message
			if refused.Status != http.StatusUnauthorized {
				t.Errorf("%s: the status %d", name, refused.Status)
			}
			for _, secret := range strings.Split(test.token, ".") {
				if len(secret) > 8 && strings.Contains(got, secret) {
					t.Errorf("%s: %q repeats the token", name, got)
				}
			}
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	by := New(Options{Listener: "models", JWT: j})
	who, known := by.Authenticate(&Credentials{Token: good, Shown: true})
	if !known || who.Name() != "user=ann" || who.May(Take, "any") != nil || who.May(AdminChange, "any") == nil {
		t.Errorf("%v, %v", who, known)
	}
	shown := &Credentials{Token: rs(map[string]any{"aud": "shop"}), Shown: true}
	if _, known := by.Authenticate(shown); known || !strings.Contains(shown.Why, "another audience") {
		t.Errorf("%v %q", known, shown.Why)
	}
}

// keysServer answers for the issuer's URL, in a bubble of time.
type keysServer struct {
	answer atomic.Pointer[func() (int, []byte, error)]
	asked  atomic.Int32
}

func (s *keysServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked.Add(1)
	status, text, err := (*s.answer.Load())()
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, nil
}

func (s *keysServer) set(status int, text []byte, err error) {
	answer := func() (int, []byte, error) { return status, text, err }
	s.answer.Store(&answer)
}

// TestKeysOfURL wants keys read each hour, and at most once a minute for a kid that is not known;
// the last ones in force for 24 hours while the URL is away; and everybody refused after that.
func TestKeysOfURL(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		server := &keysServer{}
		server.set(0, nil, errors.New("no route"))
		j, err := NewJWT(JWTOptions{Keys: "https://issuer/keys", Issuer: "https://issuer", Audience: "weir", Labels: "user=sub"})
		if err != nil {
			t.Fatal(err)
		}
		j.keys = newRemoteKeys("https://issuer/keys", server, slog.New(slog.NewTextHandler(&log, nil)))
		token := func(kid string) string { return sign(t, jwt.SigningMethodEdDSA, i.ed, kid, claims(nil)) }
		wants := func(kid, want string) {
			t.Helper()
			_, err := j.labelsOf(token(kid))
			if got := fmt.Sprint(err); !strings.Contains(got, want) {
				t.Errorf("after %v: %q, want %q", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), got, want)
			}
		}
		wants("EdDSA", "the keys of the issuer are not known yet")
		if until, err := j.State(); err == nil || !until.IsZero() {
			t.Errorf("before the start: %v, %v", until, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			j.Refresh(ctx)
		}()
		synctest.Wait()
		wants("EdDSA", "the keys of the issuer are not known yet")
		if until, err := j.State(); err == nil || !until.IsZero() || !strings.Contains(err.Error(), "no route") {
			t.Errorf("%v, %v", until, err)
		}
		server.set(200, i.jwks(""), nil)
		time.Sleep(time.Minute) // the pause after a failure
		synctest.Wait()
		wants("EdDSA", "nil")

		// A flood of unknown keys is one reading a minute, and a new key is known at once after it.
		before := server.asked.Load()
		for range 100 {
			wants("EdDSA2", "no key of the issuer has the token's kid")
		}
		if n := server.asked.Load() - before; n != 0 {
			t.Errorf("%d readings within a minute of the last", n)
		}
		time.Sleep(time.Minute)
		server.set(200, i.jwks("2"), nil)
		results := make(chan error)
		for range 100 {
			go func() {
				_, err := j.labelsOf(token("EdDSA2"))
				results <- err
			}()
		}
		for range 100 {
			if err := <-results; err != nil {
				t.Errorf("a new key: %v", err)
			}
		}
		if n := server.asked.Load() - before; n != 1 {
			t.Errorf("%d readings for a new key, want 1", n)
		}
		wants("EdDSA", "no key of the issuer has the token's kid") // The issuer has withdrawn it.

		// A slow server holds nobody up for long.
		time.Sleep(time.Minute)
		slow := func() (int, []byte, error) {
			time.Sleep(9 * time.Second)
			return 200, i.jwks("2"), nil
		}
		server.answer.Store(&slow)
		began := time.Now()
		wants("EdDSA3", "no key of the issuer has the token's kid")
		if took := time.Since(began); took != keysWait {
			t.Errorf("an unknown key waited for %v, want %v", took, keysWait)
		}
		time.Sleep(10 * time.Second)

		// The URL is away, in several ways.
		for name, away := range map[string]func(){
			"a status":    func() { server.set(503, nil, nil) },
			"a redirect":  func() { server.set(302, nil, nil) },
			"no JSON":     func() { server.set(200, []byte("<html>"), nil) },
			"no keys":     func() { server.set(200, []byte(`{"keys":[]}`), nil) },
			"a large set": func() { server.set(200, bytes.Repeat([]byte(" "), maxKeys+1), nil) },
		} {
			away()
			time.Sleep(time.Hour)
			synctest.Wait()
			if until, err := j.State(); err == nil || time.Until(until) > 23*time.Hour {
				t.Errorf("%s: %v, %v", name, time.Until(until), err)
			}
			wants("EdDSA2", "nil")
			server.set(200, i.jwks("2"), nil)
			time.Sleep(time.Minute)
			synctest.Wait()
			if until, err := j.State(); err != nil || time.Until(until) < 23*time.Hour {
				t.Errorf("%s is over: %v, %v", name, time.Until(until), err)
			}
		}
		server.set(0, nil, errors.New("no route"))
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		wants("EdDSA2", "nil")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		wants("EdDSA2", "tokens cannot be checked: the keys of the issuer could not be read for 24 hours")
		server.set(200, i.jwks("2"), nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		wants("EdDSA2", "nil")
		if n := strings.Count(log.String(), "level=ERROR"); n == 0 || n > 10 {
			t.Errorf("%d errors are logged: %s", n, log.String())
		}
		cancel()
		<-ended
	})
}

// TestNewJWT wants settings refused that would let strangers in, or nobody.
func TestNewJWT(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(dir, fmt.Sprint(len(text)))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	all := func(keys string) JWTOptions {
		return JWTOptions{Keys: keys, Issuer: "i", Audience: "a", Labels: "user=sub"}
	}
	insecure := all("http://issuer/keys")
	insecure.Insecure = true
	for name, test := range map[string]struct {
		o           JWTOptions
		field, want string
	}{
		"nothing":        {JWTOptions{}, "", ""},
		"a URL":          {all("https://issuer/keys"), "", ""},
		"on this host":   {all("http://127.0.0.1:1/keys"), "", ""},
		"in a tunnel":    {insecure, "", ""},
		"in the clear":   {all("http://issuer/keys"), "jwt keys", "https://issuer/keys, or --insecure-token"},
		"a password":     {all("https://me:secret@issuer/keys"), "jwt keys", "https:// URL"},
		"another scheme": {all("ftp://issuer/keys"), "jwt keys", "https:// URL"},
		"no keys":        {JWTOptions{Issuer: "i", Audience: "a", Labels: "user=sub"}, "jwt keys", "beside --jwt-issuer"},
		"no issuer":      {JWTOptions{Keys: "k", Audience: "a", Labels: "user=sub"}, "jwt issuer", "the iss of its tokens"},
		"no audience":    {JWTOptions{Keys: "k", Issuer: "i", Labels: "user=sub"}, "jwt audience", "the aud of its tokens"},
		"no label":       {JWTOptions{Keys: "k", Issuer: "i", Audience: "a"}, "jwt label", "user=sub"},
		"a reserved one": {JWTOptions{Keys: "k", Issuer: "i", Audience: "a", Labels: "model=sub"}, "jwt label", "every request has key, model, end_user already"},
		"no set":         {all(file("no JSON")), "jwt keys", "want JSON with a list of keys"},
		"an empty set":   {all(file(`{"keys":[]}`)), "jwt keys", "without keys of a kind that is known"},
		"a strange kind": {all(file(`{"keys":[{"kty":"XYZ","kid":"a"}]}`)), "jwt keys", "without keys of a kind that is known"},
	} {
		j, err := NewJWT(test.o)
		invalid := new(weir.InvalidError)
		if errors.As(err, &invalid) != (test.field != "") || invalid.Field != test.field || !strings.Contains(invalid.Want, test.want) {
			t.Errorf("%s: %v, %v, want %s: %s", name, j, err, test.field, test.want)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewJWT(all(filepath.Join(dir, "gone"))); err == nil || !strings.Contains(err.Error(), "jwt keys") {
		t.Errorf("no file: %v", err)
	}
}
