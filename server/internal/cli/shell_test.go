package cli

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testing/pages"
)

// programs are those of others that the pages use.
var programs = strings.Fields(`apt base64 caddy cat cd chmod complete cp curl cut docker echo exit for git go grep grpcurl haproxy head helm install jobs kill kubectl litellm mkdir nginx node npm
export python3 h2load redis-benchmark redis-cli redis-server sed seq sha256sum sleep sort source ssh-keygen systemctl tar traefik uniq umask wait xargs done printf`)

// TestCommandsInPages reads every command of every page, also those that no test can
// run: weir has its subcommand and flags, make its target, and what they name of the
// repository is there.
func TestCommandsInPages(t *testing.T) {
	t.Parallel()
	n := 0
	for _, page := range pages.All(t) {
		for _, b := range pages.Blocks(t, page) {
			if b.Language != "sh" && b.Language != "console" {
				continue
			}
			for _, line := range b.Commands() {
				for _, command := range simple(line) {
					n++
					if why := wrong(command); why != "" {
						t.Errorf("%s:%d: %s: %s", page, b.Line, strings.Join(command, " "), why)
					}
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("%d commands were found", n)
	}
}

// token is a word with its quotes, or what ends a command.
var token = regexp.MustCompile(`\d?>&\d|\d?>+|(?:"[^"]*"|'[^']*'|[^\s|;&()<>"'])+|&&|[|;&()<]`)

// simple splits a line into commands of words, without redirections and what belongs
// to the shell.
func simple(line string) [][]string {
	var all [][]string
	var words []string
	redirected := false
	end := func() {
		redirected = false
		if words = bare(words); len(words) > 0 {
			all = append(all, words)
		}
		words = nil
	}
	for _, text := range token.FindAllString(line, -1) {
		switch {
		case strings.ContainsAny(text[:1], "|;&()"):
			end()
		case strings.Contains(text, ">&"):
		case strings.HasSuffix(text, ">") || text == "<":
			redirected = true
		case redirected:
			redirected = false
		default:
			words = append(words, strings.Trim(text, `"'`))
		}
	}
	end()
	return all
}

var assignment = regexp.MustCompile(`^\w+=`)

// bare takes away what stands before a command.
func bare(words []string) []string {
	for len(words) > 0 && (slices.Contains([]string{"do", "sudo", "until", "{", "}", "$"}, words[0]) || assignment.MatchString(words[0])) {
		words = words[1:]
	}
	if len(words) > 3 && words[0] == "go" && words[1] == "run" && words[2] == "./server/cmd/weir" {
		words = append([]string{"weir"}, words[3:]...)
	}
	return words
}

// ours is what names a file of the repository.
var ours = regexp.MustCompile(`^(?:\./)?(?:cmd|deploy|docs|examples|server)(?:/[\w./-]+)?$`)

// wrong says what is wrong with a command.
func wrong(words []string) string {
	for _, word := range words[1:] {
		if words[0] == "git" || words[0] == "kubectl" && words[1] == "port-forward" {
			break // these words name tags, and objects of a cluster
		}
		if file := strings.TrimPrefix(word, "$PWD/"); ours.MatchString(file) && strings.Contains(file, "/") {
			if _, err := os.Stat(pages.Path(strings.TrimSuffix(file, "/."))); err != nil {
				return "there is no " + file
			}
		}
	}
	switch program := words[0]; {
	case program == "weir" || program == "bin/weir":
		return misused(words[1:])
	case program == "make":
		return unmade(words[1:])
	case !slices.Contains(programs, program) && program != ".ci/run":
		return "what is " + program + "?"
	}
	return ""
}

// misused says what weir does not know of its arguments.
func misused(args []string) string {
	root := newRoot()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err.Error()
	}
	for i, arg := range rest {
		if strings.HasPrefix(arg, "$(") {
			rest[i] = "1" // what a program would print
		}
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err.Error()
	}
	if cmd.HasSubCommands() && !cmd.HasAvailableLocalFlags() {
		return "want a subcommand"
	}
	return ""
}

func unmade(targets []string) string {
	text, err := os.ReadFile(pages.Path("Makefile"))
	if err != nil {
		return err.Error()
	}
	for _, target := range targets {
		if !strings.Contains(target, "=") && !strings.Contains(string(text), "\n"+target+":") {
			return fmt.Sprintf("make has no target %s", target)
		}
	}
	return ""
}

// TestWrongCommands: the test above must see what is wrong.
func TestWrongCommands(t *testing.T) {
	t.Parallel()
	for line, good := range map[string]bool{
		"weir serve --config rules.yaml 2> weir.log &":                        true,
		"for i in $(seq 35); do curl -s http://127.0.0.1:8000/; done; echo":   true,
		`go run ./server/cmd/weir serve --config examples/nginx/rules.yaml &`: true,
		"cd examples && go run ./chi &":                                       true,
		"make build VERSION=v1.2.3":                                           true,
		"weir serve --confg rules.yaml":                                       false,
		"weir serv":                                                           false,
		"weir key":                                                            false,
		"go run ./server/cmd/weir serve --nothing":                            false,
		"source <(weir completion bash)":                                      true,
		"source <(weir nothing)":                                              false,
		"weir version | weir none":                                            false,
		"make nothing":                                                        false,
		"caddy run --config examples/caddy/Caddyfil":                          false,
		"weird": false,
		`for i in 1 2; do weir chec 'x' > "a b"; done`:                                     false,
		"kubectl apply -k deploy/kubernete":                                                false,
		"docker build -f deploy/docker/Dockerfile -t weir . && docker compose -f deploy/x": false,
	} {
		why := ""
		for _, command := range simple(line) {
			why += wrong(command)
		}
		if (why == "") != good {
			t.Errorf("%s: %q", line, why)
		}
	}
}
