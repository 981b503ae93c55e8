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
	"google.golang.org/protobuf/reflect/protoreflect"
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
	root := t.message(t.step(0, "", -1), c.ProtoReflect())
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

// message returns a message in the form of a rules file, whose keys have the names of the
// fields. An empty text and a 0 are as good as none.
func (t *tree) message(line int, m protoreflect.Message) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: line}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		scalar := f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.Uint32Kind
		if f.FullName() != nameOfResource && (scalar || m.Has(f)) {
			t.put(n, string(f.Name()), t.field(n, f, m.Get(f)))
		}
	}
	return n
}

// nameOfResource is the only field that is no key.
const nameOfResource = "ratelimit.config.ratelimit.v3.RateLimitConfig.name"

func (t *tree) field(in *yaml.Node, f protoreflect.FieldDescriptor, v protoreflect.Value) *yaml.Node {
	key := string(f.Name())
	switch {
	case f.IsList():
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: t.step(in.Line, key, -1)}
		for i := range v.List().Len() {
			n.Content = append(n.Content, t.message(t.step(in.Line, key, i), v.List().Get(i).Message()))
		}
		return n
	case f.Kind() == protoreflect.StringKind:
		return t.text(in, key, v.String())
	case f.Kind() == protoreflect.EnumKind:
		name := fmt.Sprint(v.Enum())
		if known := f.Enum().Values().ByNumber(v.Enum()); known != nil {
			name = string(known.Name())
		}
		return t.text(in, key, name)
	case f.Kind() != protoreflect.MessageKind:
		return t.scalar(in, key, v.String())
	}
	if data, ok := v.Message().Interface().(*structpb.Struct); ok {
		return t.data(in, key, structpb.NewStructValue(data))
	}
	return t.message(t.step(in.Line, key, -1), v.Message())
}

func (t *tree) put(object *yaml.Node, key string, value *yaml.Node) {
	object.Content = append(object.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key, Line: value.Line}, value)
}

func (t *tree) text(in *yaml.Node, key, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: value, Line: t.step(in.Line, key, -1)}
}

// scalar returns a number or a boolean.
func (t *tree) scalar(in *yaml.Node, key, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: value, Line: t.step(in.Line, key, -1)}
}

// data returns free-form data.
func (t *tree) data(in *yaml.Node, key string, v *structpb.Value) *yaml.Node {
	switch v := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return t.text(in, key, v.StringValue)
	case *structpb.Value_BoolValue:
		return t.scalar(in, key, strconv.FormatBool(v.BoolValue))
	case *structpb.Value_NumberValue:
		return t.scalar(in, key, strconv.FormatFloat(v.NumberValue, 'f', -1, 64))
	case *structpb.Value_StructValue:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: t.step(in.Line, key, -1)}
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
	return t.scalar(in, key, "null")
}
