package meter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/config"
)

const (
	// maxModel is the length of the longest name of a model, in bytes.
	maxModel = 256
	// maxTokens is the largest number that can be charged.
	maxTokens = weir.MaxCost
)

// A request is what a body says about its cost.
type request struct {
	endpoint endpoint
	memory   *admission.Body
	body     []byte
	fields   []field
	model    string
	// instead says that the model takes the place of the one in the body.
	instead bool
	endUser string // whom the client says that it works for; empty: nobody
	stream  bool
	bounded bool   // the output has a bound
	bound   int64  // of one answer, in tokens
	zero    string // the field with a bound of 0; empty: there is none
	answers int64  // how many are asked for
	prompts int64  // how many are answered
	parts   parts
	// asked says that the client wants the usage in the stream.
	asked bool
	// options is the field stream_options, and within its fields; nil if it is absent or null.
	options *field
	within  []field
}

// wantText and the rest say what the fields that are read can be.
const (
	wantText  = "want a text"
	wantTruth = "want true or false"
	wantWhole = "want a whole number, 0 or more"
	wantList  = "want a list"
)

// readers read the fields that cost something. A name in another spelling is refused,
// because a lenient provider may read it.
var readers = map[string]func(r *request, f *field) error{
	"model":                 (*request).readModel,
	"models":                (*request).readOtherModels,
	"fallbacks":             (*request).readOtherModels,
	"background":            (*request).readBackground,
	"stream":                (*request).readStream,
	"stream_options":        (*request).readOptions,
	"max_tokens":            (*request).readBound,
	"max_completion_tokens": (*request).readBound,
	"max_output_tokens":     (*request).readBound,
	"n":                     (*request).readAnswers,
	"best_of":               (*request).readAnswers,
	"messages":              (*request).readContent,
	"system":                (*request).readContent,
	"input":                 (*request).readContent,
	"instructions":          (*request).readContent,
	"prompt":                (*request).readPrompt,
	"tools":                 (*request).readTools,
	"previous_response_id":  (*request).readStored,
	"conversation":          (*request).readStored,
	"service_tier":          (*request).readTier,
	"modalities":            (*request).readModalities,
	"user":                  (*request).readUser,
	"metadata":              (*request).readMetadata,
}

// spellings are the names of readers by their spelling.
var spellings = func() map[string]string {
	all := map[string]string{}
	for name := range readers {
		all[string(spelling(nil, []byte(name)))] = name
	}
	return all
}()

// harmless are fields that make neither the input longer than the body nor the output
// longer than its bound, and that have no price of their own. A strict estimate takes no
// others.
var harmless = func() map[string]bool {
	all := map[string]bool{}
	for name := range strings.FieldsSeq(`
		add_generation_prompt cache_control chat_template_kwargs continue_final_message dimensions echo enable_thinking
		encoding_format frequency_penalty function_call functions guided_choice guided_grammar guided_json guided_regex
		ignore_eos include include_reasoning include_stop_str_in_output input_type length_penalty logit_bias logprobs
		max_tool_calls metadata min_p min_tokens output_config output_format parallel_tool_calls presence_penalty
		prompt_cache_key prompt_cache_retention reasoning reasoning_effort repetition_penalty response_format safe_prompt
		safety_identifier seed skip_special_tokens spaces_between_special_tokens stop stop_sequences stop_token_ids store
		structured_outputs suffix temperature text thinking tool_choice top_k top_logprobs top_p truncate truncation
		typical_p user verbosity`) {
		all[name] = true
	}
	return all
}()

// tiers are the classes of service that cost no more than the ordinary one.
var tiers = map[string]bool{"auto": true, "default": true, "flex": true, "standard_only": true}

// contents are the fields with the input of each endpoint.
var contents = map[endpoint]map[string]level{
	chat:        {"messages": turn},
	messages:    {"messages": turn, "system": part},
	countTokens: {"messages": turn, "system": part},
	responses:   {"input": item, "instructions": item},
	embeddings:  {"input": text},
}

// readRequest reads the body of a request. The error is a [*refusal] or
// [admission.ErrFull].
func readRequest(e endpoint, memory *admission.Body) (*request, error) {
	body := memory.Text
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, invalidBody("the body is not JSON")
	}
	r := &request{endpoint: e, memory: memory, body: body, answers: 1, prompts: 1}
	var err error
	if r.fields, err = fieldsOf("the body", body, memory); err != nil {
		return nil, err
	}
	seen := make(map[string]bool, len(r.fields))
	for i := range r.fields {
		f := &r.fields[i]
		if seen[f.name] {
			return nil, invalidBody(fmt.Sprintf("the field %q is there twice", shorten(f.name)))
		}
		seen[f.name] = true
		if name, known := spellings[string(spelling(nil, []byte(f.name)))]; known && name != f.name {
			return nil, invalidBody(fmt.Sprintf("the field %q is another spelling of %q", shorten(f.name), name))
		}
		read, known := readers[f.name]
		switch {
		case known:
			err = read(r, f)
		case !harmless[f.name]:
			r.unbounded(f, "it is not known, so that it has no bound")
		}
		if err != nil {
			return nil, err
		}
	}
	if r.model == "" {
		return nil, invalidBody("the body has no model")
	}
	return r, nil
}

// refuse is the error of a field.
func (f *field) refuse(want string) error {
	return invalidBody(fmt.Sprintf("the field %q is %s: %s", f.name, shorten(string(f.value)), want))
}

// null reports whether the field counts as absent.
func (f *field) null() bool { return !some(f.value) }

// text returns the text of a field; empty if it is null.
func (f *field) text() (string, error) {
	switch {
	case f.null():
		return "", nil
	case f.value[0] != '"':
		return "", f.refuse(wantText)
	}
	return string(unquoted(f.value)), nil
}

// truth returns whether a field is true.
func (f *field) truth() (bool, error) {
	switch string(f.value) {
	case "true":
		return true, nil
	case "false", "null":
		return false, nil
	}
	return false, f.refuse(wantTruth)
}

// whole reads a whole number; null counts as absent. Larger numbers than can be charged
// are the largest one.
func (f *field) whole() (n int64, given bool, err error) {
	if f.null() {
		return 0, false, nil
	}
	u, err := strconv.ParseUint(string(f.value), 10, 64)
	if err != nil {
		return 0, false, f.refuse(wantWhole)
	}
	return int64(min(u, maxTokens)), true, nil
}

// unbounded notes that a field has no bound; the first of it counts.
func (r *request) unbounded(f *field, why string) {
	if r.parts.unbounded == "" {
		r.parts.unbounded = fmt.Sprintf("%q: %s", shorten(f.name), why)
	}
}

func (r *request) readModel(f *field) error {
	name, err := f.text()
	if err != nil {
		return err
	}
	if len(name) > maxModel {
		return invalidBody(fmt.Sprintf("the name of the model has %d bytes: at most %d", len(name), maxModel))
	}
	if name != "" && !isModel(name) {
		return invalidBody(fmt.Sprintf("the model is %q: %s", shorten(name), wantModel))
	}
	r.model = name
	return nil
}

const wantModel = "want letters, digits and . _ : - @ /, and no part . or .. between slashes"

// isModel reports whether a text is a name of a model. Providers that resell others have
// slashes in it, and some an @ before a version.
func isModel(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.Trim(part, ".") == "" {
			return false
		}
	}
	return strings.IndexFunc(name, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("._:-@/", c))
	}) < 0
}

// readOtherModels refuses models in place of the one that is limited.
func (r *request) readOtherModels(f *field) error {
	if f.null() {
		return nil
	}
	return invalidBody(fmt.Sprintf("the field %q names other models, which are not metered", f.name))
}

func (r *request) readBackground(f *field) error {
	switch is, err := f.truth(); {
	case err != nil:
		return err
	case is:
		return invalidBody("background requests are not metered")
	}
	return nil
}

func (r *request) readStream(f *field) (err error) {
	r.stream, err = f.truth()
	return err
}

// readOptions reads stream_options.
func (r *request) readOptions(f *field) error {
	if f.null() {
		return nil
	}
	fields, err := fieldsOf(`the field "stream_options"`, f.value, r.memory)
	if err != nil {
		return err
	}
	const usage = "include_usage"
	given := false
	for i := range fields {
		o := &fields[i]
		if string(spelling(nil, []byte(o.name))) != "includeusage" {
			continue
		}
		if o.name != usage {
			return invalidBody(fmt.Sprintf("the field %q of \"stream_options\" is another spelling of %q", shorten(o.name), usage))
		}
		if given {
			return invalidBody("the field \"include_usage\" of \"stream_options\" is there twice")
		}
		given = true
		if r.asked, err = o.truth(); err != nil {
			return err
		}
	}
	r.options, r.within = f, fields
	return nil
}

// readBound reads a bound of the output. That of another endpoint is refused: the provider
// would ignore it.
func (r *request) readBound(f *field) error {
	n, given, err := f.whole()
	if err != nil || !given {
		return err
	}
	own := r.endpoint.bounds()
	switch {
	case len(own) == 0:
		return invalidBody(fmt.Sprintf("the field %q is not one of this endpoint", f.name))
	case !slices.Contains(own, f.name):
		return invalidBody(fmt.Sprintf("the field %q is not one of this endpoint: want %q", f.name, own[0]))
	case n == 0:
		r.zero = f.name
		return nil
	}
	r.bounded, r.bound = true, max(r.bound, n)
	return nil
}

// readAnswers reads how many answers are asked for.
func (r *request) readAnswers(f *field) error {
	n, _, err := f.whole()
	r.answers = max(r.answers, n)
	return err
}

// readContent reads the input.
func (r *request) readContent(f *field) error {
	of, known := contents[r.endpoint][f.name]
	if !known {
		r.unbounded(f, "it is not one of this endpoint, so that it has no bound")
		return nil
	}
	return r.walk(f, of)
}

// walk walks over a field with parts.
func (r *request) walk(f *field, of level) error {
	s := scanner{text: f.value, in: f.name, found: &r.parts}
	s.list(of)
	return s.err
}

func (r *request) readTools(f *field) error { return r.walk(f, tool) }

// readPrompt reads the prompts of completions, which are answered each. That of responses
// is a template at the provider.
func (r *request) readPrompt(f *field) error {
	switch r.endpoint {
	case completions:
		r.prompts = prompts(f.value)
		return r.walk(f, text)
	case responses:
		return r.readStored(f)
	}
	return r.readContent(f)
}

// readStored reads a field that names input at the provider.
func (r *request) readStored(f *field) error {
	if !f.null() {
		r.unbounded(f, "input that is stored at the provider has no bound")
	}
	return nil
}

// readTier reads the class of service.
func (r *request) readTier(f *field) error {
	name, err := f.text()
	if err == nil && !f.null() && !tiers[name] {
		r.unbounded(f, fmt.Sprintf("the price of %q is not known", shorten(name)))
	}
	return err
}

// readModalities reads in which forms the model may answer.
func (r *request) readModalities(f *field) error {
	var forms []string
	if json.Unmarshal(f.value, &forms) != nil {
		return f.refuse(wantList + " of texts")
	}
	for _, form := range forms {
		if form != "text" {
			r.unbounded(f, fmt.Sprintf("%q has no bound", shorten(form)))
		}
	}
	return nil
}

// maxEndUser is the length of the longest name of an end user, in bytes.
const maxEndUser = 1024

// readUser reads for whom a client of OpenAI's form works.
func (r *request) readUser(f *field) error {
	if r.endpoint == messages || r.endpoint == countTokens {
		return nil // It is not one of Anthropic's.
	}
	return r.readEndUser(f)
}

// readMetadata reads for whom a client of Anthropic's form works. OpenAI's metadata are only kept.
func (r *request) readMetadata(f *field) error {
	if f.null() || r.endpoint != messages && r.endpoint != countTokens {
		return nil
	}
	fields, err := fieldsOf(`the field "metadata"`, f.value, r.memory)
	if err != nil {
		return err
	}
	given := false
	for i := range fields {
		m := &fields[i]
		switch {
		case string(spelling(nil, []byte(m.name))) != "userid":
			continue
		case m.name != "user_id":
			return invalidBody(fmt.Sprintf("the field %q of \"metadata\" is another spelling of \"user_id\"", shorten(m.name)))
		case given:
			return invalidBody("the field \"user_id\" of \"metadata\" is there twice")
		}
		given = true
		if err := r.readEndUser(m); err != nil {
			return err
		}
	}
	return nil
}

func (r *request) readEndUser(f *field) error {
	name, err := f.text()
	if err == nil && len(name) > maxEndUser {
		return invalidBody(fmt.Sprintf("the field %q has %d bytes: at most %d", f.name, len(name), maxEndUser))
	}
	r.endUser = name
	return err
}

// some reports whether a value is there and not null.
func some(value []byte) bool { return len(value) > 0 && string(value) != "null" }

// prompts returns how many prompts a value has: an array of texts, or of arrays of tokens,
// has several.
func prompts(value []byte) int64 {
	if value[0] != '[' {
		return 1
	}
	s := scanner{text: value, i: 1}
	n := int64(0)
	for s.next(']') {
		if c := s.at(); c == '"' || c == '[' {
			n++
		}
		s.skip()
	}
	return max(1, n)
}

// times multiplies two numbers up to the largest that can be charged.
func times(a, b int64) int64 {
	if a > 0 && b > maxTokens/a {
		return maxTokens
	}
	return a * b
}

// plus adds two numbers up to the largest that can be charged.
func plus(a, b int64) int64 { return min(maxTokens, a+b) }

// An edit replaces the bytes from … to of a body.
type edit struct {
	from, to int
	value    string
}

// setting returns the edit that sets a field of an object, whose text begins at a place of
// the body.
func setting(object []byte, at int, fields []field, name, value string) edit {
	for i := range fields {
		if f := &fields[i]; f.name == name {
			return edit{at + f.at, at + f.at + len(f.value), value}
		}
	}
	s := scanner{text: object}
	s.space()
	open := at + s.i + len("{")
	text := strconv.Quote(name) + ":" + value
	if len(fields) > 0 {
		text += ","
	}
	return edit{open, open, text}
}

// bounding returns the edit that bounds the output.
func (r *request) bounding(n int64) edit {
	return setting(r.body, 0, r.fields, r.endpoint.bounds()[0], decimal(n))
}

// with returns the request with another model in place of its own.
func (r *request) with(model string) *request {
	other := *r
	other.model, other.instead = model, true
	return &other
}

// replacing returns the edits that put another model in place of the body's, and its largest
// output in place of a larger bound, which a provider would refuse.
func (r *request) replacing(price *config.Model) (edits []edit) {
	if !r.instead {
		return nil
	}
	edits = append(edits, setting(r.body, 0, r.fields, "model", strconv.Quote(r.model)))
	if price == nil || price.MaxOutput == 0 || r.bound <= price.MaxOutput {
		return edits
	}
	for i := range r.fields {
		f := &r.fields[i]
		if n, given, err := f.whole(); slices.Contains(r.endpoint.bounds(), f.name) && err == nil && given && n > price.MaxOutput {
			edits = append(edits, setting(r.body, 0, r.fields, f.name, decimal(price.MaxOutput)))
		}
	}
	r.bound = price.MaxOutput
	return edits
}

// reporting returns the edit that asks for the usage in a stream.
func (r *request) reporting() edit {
	if r.options == nil {
		return setting(r.body, 0, r.fields, "stream_options", `{"include_usage":true}`)
	}
	return setting(r.options.value, r.options.at, r.within, "include_usage", "true")
}

// Pieces are the text of a request, which share the memory of its body.
type pieces [][]byte

// edited returns the body with edits.
func (r *request) edited(edits ...edit) pieces {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var all pieces
	from := 0
	for _, e := range edits {
		all = append(all, r.body[from:e.from], []byte(e.value))
		from = e.to
	}
	return append(all, r.body[from:])
}

// size returns the number of bytes.
func (c pieces) size() (n int64) {
	for _, piece := range c {
		n += int64(len(piece))
	}
	return n
}

// shortened is shorten for a text that may be long.
func shortened(text []byte) string { return shorten(string(text[:min(len(text), maxName)])) }

// shorten cuts a part of a request to a length that a message may repeat.
func shorten(text string) string {
	const most = 80
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
