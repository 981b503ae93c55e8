package rls

import (
	"context"
	"errors"
	"net/http"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/rules"
)

// MaxRequestBytes is the size of the largest request.
const MaxRequestBytes = 256 << 10

// JSON answers requests in proto3's JSON: 200 within the limits, 429 over them, 400 for a
// malformed request, 403 if the caller lacks the permission, 503 if the store fails. Other
// answers have plain text, as those of envoyproxy/ratelimit. The encoded answers are those of
// answer, whose errors are statuses. Nil: those of the service.
func (s *Service) JSON(answer func(ctx context.Context, raw []byte) ([]byte, error)) http.Handler {
	if answer == nil {
		answer = func(ctx context.Context, raw []byte) ([]byte, error) { return s.Answer(ctx, nil, raw, nil) }
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serveJSON(w, r, answer) })
}

func (s *Service) serveJSON(w http.ResponseWriter, r *http.Request, answered func(context.Context, []byte) ([]byte, error)) {
	body, err := s.options.Budget.ReadBody(w, r, MaxRequestBytes)
	if err != nil {
		s.refuseBody(w, err)
		return
	}
	defer body.Close()
	outline := admission.OutlineOf(body.Text)
	if outline.Deep || outline.Entries > rules.MaxEntries || s.options.Bounds.CheckDescriptors(outline.Descriptors) != nil {
		answerStatus(w, http.StatusBadRequest)
		return
	}
	if err := body.Take(&outline); err != nil {
		s.refuseBody(w, err)
		return
	}
	m := new(rlsv3.RateLimitRequest)
	if protojson.Unmarshal(body.Text, m) != nil {
		answerStatus(w, http.StatusBadRequest)
		return
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		answerStatus(w, http.StatusInternalServerError)
		return
	}
	answer, err := answered(r.Context(), raw)
	switch status.Code(err) {
	case codes.OK:
		writeJSON(w, answer)
	case codes.InvalidArgument:
		answerStatus(w, http.StatusBadRequest)
	case codes.PermissionDenied:
		http.Error(w, status.Convert(err).Message(), http.StatusForbidden)
	case codes.Internal: // the rules' metadata fits no message
		answerStatus(w, http.StatusInternalServerError)
	default:
		w.Header().Set("Retry-After", "1")
		answerStatus(w, http.StatusServiceUnavailable)
	}
}

// refuseBody answers a request whose body could not be read.
func (s *Service) refuseBody(w http.ResponseWriter, err error) {
	switch tooLarge := new(http.MaxBytesError); {
	case errors.As(err, &tooLarge):
		s.rejected(admission.Message)
		if answer := s.Oversized(); answer != nil {
			writeJSON(w, answer)
			return
		}
		answerStatus(w, http.StatusRequestEntityTooLarge)
	case errors.Is(err, admission.ErrFull):
		s.rejected(admission.Memory)
		w.Header().Set("Retry-After", "1")
		answerStatus(w, http.StatusServiceUnavailable)
	default:
		answerStatus(w, http.StatusBadRequest)
	}
}

func (s *Service) rejected(why admission.Reason) {
	if s.options.Rejected != nil {
		s.options.Rejected(why)
	}
}

// writeJSON answers with an encoded answer, in JSON.
func writeJSON(w http.ResponseWriter, raw []byte) {
	answer := new(rlsv3.RateLimitResponse)
	err := proto.Unmarshal(raw, answer)
	var body []byte
	if err == nil {
		body, err = protojson.Marshal(answer)
	}
	if err != nil {
		answerStatus(w, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(body)
}

// answerStatus answers with the text of a status.
func answerStatus(w http.ResponseWriter, status int) { http.Error(w, http.StatusText(status), status) }
