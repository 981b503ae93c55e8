package xds

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	yaml "go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirlimit/weir/server/internal/config"
)

// TypeURL is the type of the resources that Weir subscribes to.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// digest tells snapshots apart by their resources, in whatever order these come. The
// version plays no part: a management server that restarts counts from 1 again.
func digest(response *discoveryv3.DiscoveryResponse) [sha256.Size]byte {
	resources := response.GetResources()
	sums := make([]string, len(resources))
	for i, r := range resources {
		h := sha256.New()
		fmt.Fprintf(h, "%d:%s", len(r.GetTypeUrl()), r.GetTypeUrl())
		h.Write(r.GetValue())
		sums[i] = string(h.Sum(nil))
	}
	slices.Sort(sums)
	return sha256.Sum256([]byte(response.GetTypeUrl() + strings.Join(sums, "")))
}

// convert returns the domains of a snapshot, checked as those of rules files are. The
// error lists every mistake with its place.
func convert(resources []*anypb.Any, merge bool, overlay *config.Overlay) ([]*config.Domain, error) {
	var list []config.Resource
	var problems config.Problems
	for i, r := range resources {
		fail := func(what, want string) {
			problems = append(problems, config.Problem{File: fmt.Sprintf("xds:resources[%d]", i), What: what, Want: want})
		}
		if r.GetTypeUrl() != TypeURL {
			fail(fmt.Sprintf("the type is %q", r.GetTypeUrl()), TypeURL)
			continue
		}
		var c ratelimitv3.RateLimitConfig
		if err := proto.Unmarshal(r.GetValue(), &c); err != nil {
			fail("the bytes are not a message of this type: "+err.Error(), "a whole "+TypeURL)
			continue
		}
		list = append(list, resource(i, &c))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	// Management servers send resources in any order.
	slices.SortStableFunc(list, func(a, b config.Resource) int { return strings.Compare(a.Name, b.Name) })
	return config.Resources(list, merge, overlay)
}

// resource returns the i-th resource of a snapshot in the form of a rules file.
func resource(i int, c *ratelimitv3.RateLimitConfig) config.Resource {
	name := c.GetName()
	if name == "" {
		name = c.GetDomain()
	}
	switch {
	case name == "":
		name = fmt.Sprintf("resources[%d]", i)
	case strings.ContainsFunc(name, func(r rune) bool { return r == ' ' || !strconv.IsPrint(r) }):
		name = strconv.Quote(name)
	}
	t := new(tree)
	root := t.object(t.step(0, "", -1))
	t.put(root, "domain", t.text(root, "domain", c.GetDomain()))
	t.descriptors(root, c.GetDescriptors())
	return config.Resource{Name: "xds:" + name, Root: root, Path: t.path}
}

// A tree makes nodes as the reader of rules files wants them. The Line of each is a
// step on the way to it.
type tree struct{ steps []step }

type step struct {
	above int // the Line of the node around; 0 for none
	name  string
	index int // in a list, else -1
}

func (t *tree) step(above int, name string, index int) int {
	t.steps = append(t.steps, step{above, name, index})
	return len(t.steps)
}

// path returns the way to a node, as "descriptors[0].rate_limit.unit".
func (t *tree) path(line int) string {
	var names []string
	for line > 0 && line <= len(t.steps) {
		s := t.steps[line-1]
		if s.index >= 0 {
			names = append(names, fmt.Sprintf("%s[%d]", s.name, s.index))
		} else if s.name != "" {
			names = append(names, s.name)
		}
		line = s.above
	}
	slices.Reverse(names)
	return strings.Join(names, ".")
}

func (t *tree) object(line int) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: line}
}

func (t *tree) put(object *yaml.Node, key string, value *yaml.Node) {
	object.Content = append(object.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key, Line: value.Line}, value)
}

func (t *tree) text(in *yaml.Node, key, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: value, Line: t.step(in.Line, key, -1)}
}

// plain returns a number or a boolean.
func (t *tree) plain(in *yaml.Node, key, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: value, Line: t.step(in.Line, key, -1)}
}

func (t *tree) truth(object *yaml.Node, key string, is bool) {
	if is {
		t.put(object, key, t.plain(object, key, "true"))
	}
}

// list adds a list of n elements to an object.
func (t *tree) list(object *yaml.Node, key string, n int, element func(i, line int) *yaml.Node) {
	if n == 0 {
		return
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: t.step(object.Line, key, -1)}
	for i := range n {
		list.Content = append(list.Content, element(i, t.step(object.Line, key, i)))
	}
	t.put(object, key, list)
}

func (t *tree) descriptors(in *yaml.Node, list []*ratelimitv3.RateLimitDescriptor) {
	t.list(in, "descriptors", len(list), func(i, line int) *yaml.Node {
		d, n := list[i], t.object(line)
		t.put(n, "key", t.text(n, "key", d.GetKey()))
		if d.GetValue() != "" {
			t.put(n, "value", t.text(n, "value", d.GetValue()))
		}
		t.limit(n, d.GetRateLimit())
		t.truth(n, "shadow_mode", d.GetShadowMode())
		t.truth(n, "detailed_metric", d.GetDetailedMetric())
		t.truth(n, "quota_mode", d.GetQuotaMode())
		if m := d.GetMetadata(); m != nil {
			t.put(n, "metadata", t.data(n, "metadata", structpb.NewStructValue(m)))
		}
		t.descriptors(n, d.GetDescriptors())
		return n
	})
}

func (t *tree) limit(in *yaml.Node, l *ratelimitv3.RateLimitPolicy) {
	if l == nil {
		return
	}
	n := t.object(t.step(in.Line, "rate_limit", -1))
	if l.GetUnit() != ratelimitv3.RateLimitUnit_UNKNOWN {
		t.put(n, "unit", t.text(n, "unit", l.GetUnit().String()))
	}
	t.put(n, "requests_per_unit", t.plain(n, "requests_per_unit", strconv.FormatUint(uint64(l.GetRequestsPerUnit()), 10)))
	t.truth(n, "unlimited", l.GetUnlimited())
	if l.GetName() != "" {
		t.put(n, "name", t.text(n, "name", l.GetName()))
	}
	t.list(n, "replaces", len(l.GetReplaces()), func(i, line int) *yaml.Node {
		r := t.object(line)
		t.put(r, "name", t.text(r, "name", l.GetReplaces()[i].GetName()))
		return r
	})
	t.put(in, "rate_limit", n)
}

// data returns free-form data.
func (t *tree) data(in *yaml.Node, key string, v *structpb.Value) *yaml.Node {
	switch v := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return t.text(in, key, v.StringValue)
	case *structpb.Value_BoolValue:
		return t.plain(in, key, strconv.FormatBool(v.BoolValue))
	case *structpb.Value_NumberValue:
		return t.plain(in, key, strconv.FormatFloat(v.NumberValue, 'f', -1, 64))
	case *structpb.Value_StructValue:
		n := t.object(t.step(in.Line, key, -1))
		for name, value := range v.StructValue.GetFields() {
			t.put(n, name, t.data(n, name, value))
		}
		return n
	case *structpb.Value_ListValue:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: t.step(in.Line, key, -1)}
		for _, value := range v.ListValue.GetValues() {
			n.Content = append(n.Content, t.data(n, key, value))
		}
		return n
	}
	return t.plain(in, key, "null")
}
