package store

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/settingfile"
)

const iamWant = "elasticache:NAME, elasticache-serverless:NAME or memorydb:NAME, where NAME is that of the replication group, cache or cluster"

// connectionLife is the longest time for which a connection is used. AWS closes it after 12
// hours.
const connectionLife = 11 * time.Hour

// tokenLife is how long AWS accepts a token for new connections.
const tokenLife = 15 * time.Minute

// An IAM names a cache of AWS that asks for signed tokens in place of passwords.
type IAM struct {
	Service      string // elasticache or memorydb
	Serverless   bool
	Cache        string // its name, in lower case
	User, Region string
}

// Keys are credentials of AWS.
type Keys struct {
	ID, Secret string
	// Session is the token of temporary credentials; empty for others.
	Session string
}

// ParseIAM reads elasticache:NAME, elasticache-serverless:NAME or memorydb:NAME. The error
// is a [*weir.InvalidError].
func ParseIAM(text string) (IAM, error) {
	service, cache, _ := strings.Cut(text, ":")
	service, serverless := strings.CutSuffix(service, "-serverless")
	i := IAM{Service: service, Serverless: serverless, Cache: strings.ToLower(cache)}
	if cache == "" || strings.ContainsAny(cache, "/?#@: ") || service != "elasticache" && (service != "memorydb" || serverless) {
		return IAM{}, &weir.InvalidError{Field: "store iam", Value: text, Want: iamWant}
	}
	return i, nil
}

// Token returns the password of an instant, which is valid for new connections for 15
// minutes: the address of a request to connect, signed by Signature Version 4.
func (i *IAM) Token(keys Keys, now time.Time) string {
	stamp := now.UTC().Format("20060102T150405Z")
	scope := strings.Join([]string{stamp[:8], i.Region, i.Service, "aws4_request"}, "/")
	query := url.Values{
		"Action": {"connect"}, "User": {i.User},
		"X-Amz-Algorithm": {"AWS4-HMAC-SHA256"}, "X-Amz-Credential": {keys.ID + "/" + scope}, "X-Amz-Date": {stamp},
		"X-Amz-Expires": {fmt.Sprint(int(tokenLife / time.Second))}, "X-Amz-SignedHeaders": {"host"},
	}
	if i.Serverless {
		query.Set("ResourceType", "ServerlessCache")
	}
	if keys.Session != "" {
		query.Set("X-Amz-Security-Token", keys.Session)
	}
	parameters := strings.ReplaceAll(query.Encode(), "+", "%20")
	nothing := sha256.Sum256(nil)
	request := strings.Join([]string{"GET", "/", parameters, "host:" + i.Cache + "\n", "host", hex.EncodeToString(nothing[:])}, "\n")
	digest := sha256.Sum256([]byte(request))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, scope, hex.EncodeToString(digest[:])}, "\n")
	key := []byte("AWS4" + keys.Secret)
	for _, part := range append(strings.Split(scope, "/"), text) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return i.Cache + "/?" + parameters + "&X-Amz-Signature=" + hex.EncodeToString(key)
}

// fromIAM returns the credential of a cache of AWS.
func fromIAM(t *target, text string, logger *slog.Logger) (*credential, error) {
	i, err := ParseIAM(text)
	if err != nil {
		return nil, err
	}
	i.User, i.Region = t.Username, cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	switch {
	case i.User == "":
		return nil, invalidURL("without a user", "rediss://USER@…, for AWS signs tokens for a user")
	case t.TLSConfig == nil:
		return nil, invalidURL("without TLS", "rediss://… or rediss+cluster://…, for AWS takes tokens by TLS alone")
	case i.Region == "":
		return nil, &weir.InvalidError{Field: "store iam", Value: text, Want: "AWS_REGION in the environment"}
	}
	if _, err := keySource(); err != nil {
		return nil, err
	}
	if t.ConnMaxLifetime <= 0 || t.ConnMaxLifetime > connectionLife {
		t.ConnMaxLifetime = connectionLife
	}
	return newCredential(&credential{
		setting: "store iam", user: i.User, interval: tokenInterval,
		read: func(ctx context.Context) (string, error) {
			source, err := keySource()
			if err != nil {
				return "", err
			}
			keys, err := source(ctx)
			if err != nil {
				return "", fmt.Errorf("server: store iam: %w", err)
			}
			return i.Token(keys, time.Now()), nil
		},
	}, logger), nil
}

// containerHost serves credentials to containers of ECS.
const containerHost = "http://169.254.170.2"

// keySource returns where the environment says the credentials of AWS are: in its
// variables, or at the address that containers of ECS and pods of EKS get them from.
func keySource() (func(context.Context) (Keys, error), error) {
	keys := Keys{os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN")}
	if keys.ID != "" && keys.Secret != "" {
		return func(context.Context) (Keys, error) { return keys, nil }, nil
	}
	address := os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if path := os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); path != "" {
		address = containerHost + path
	}
	if address == "" {
		return nil, &weir.InvalidError{Field: "store iam", Value: "without credentials of AWS", Want: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_CONTAINER_CREDENTIALS_FULL_URI or AWS_CONTAINER_CREDENTIALS_RELATIVE_URI in the environment"}
	}
	return func(ctx context.Context) (Keys, error) { return containerKeys(ctx, address) }, nil
}

// containerKeys fetches temporary credentials.
func containerKeys(ctx context.Context, address string) (Keys, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return Keys{}, fmt.Errorf("the address of the credentials: %w", err)
	}
	token := os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
	if file := os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
		if token, err = settingfile.Line("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file); err != nil {
			return Keys{}, err
		}
	}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Keys{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return Keys{}, err
	}
	var keys struct{ AccessKeyId, SecretAccessKey, Token string }
	if err := json.Unmarshal(body, &keys); resp.StatusCode != http.StatusOK || err != nil || keys.AccessKeyId == "" || keys.SecretAccessKey == "" {
		return Keys{}, fmt.Errorf("the service of credentials answered %s without credentials", resp.Status)
	}
	return Keys{keys.AccessKeyId, keys.SecretAccessKey, keys.Token}, nil
}
