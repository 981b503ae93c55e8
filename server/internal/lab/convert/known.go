package convert

import (
	"slices"
	"strings"
)

// known reports whether a directive belongs to nginx and neither refuses requests before
// auth_request nor changes a sub-request to Weir, or is handled in this package. The phases
// in nginx's modules decide: auth_request runs last in the access phase, and limit_req
// before it. A module that nginx does not ship may run anywhere.
func known(name string) bool {
	return slices.Contains(knownNames, name) ||
		slices.ContainsFunc(knownPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

var knownNames = strings.Fields(`
	absolute_redirect access_log add_after_body add_before_body add_header add_header_inherit add_trailer add_trailer_inherit
	addition_types aio aio_write alias allow ancient_browser ancient_browser_value auth_basic auth_basic_user_file auth_delay
	auth_request auth_request_set break chunked_transfer_encoding create_full_put_path default_type deny directio
	directio_alignment disable_symlinks early_hints empty_gif error_log error_page etag expires flv geo http if
	if_modified_since ignore_invalid_headers include index internal js_body_filter js_content js_header_filter js_import
	js_path js_set js_shared_dict_zone js_var keyval keyval_zone large_client_header_buffers limit_except limit_rate
	limit_rate_after listen location map max_headers max_ranges merge_slashes min_delete_depth more_clear_headers more_set_headers mirror mirror_request_body
	modern_browser modern_browser_value open_log_file_cache override_charset port_in_redirect post_action postpone_gzipping
	postpone_output random_index read_ahead real_ip_header real_ip_recursive recursive_error_pages
	reset_timedout_connection return rewrite rewrite_log root satisfy send_lowat send_timeout sendfile sendfile_max_chunk
	set set_real_ip_from slice source_charset split_clients stub_status subrequest_output_buffer_size tcp_nodelay
	tcp_nopush try_files underscores_in_headers uninitialized_variable_warn upstream valid_referers xml_entities
	xml_external_entities zone`)

// knownPrefixes begin the names of modules' directives.
var knownPrefixes = strings.Fields(`
	autoindex body_filter_by_lua brotli charset client_ connection_pool content_by_lua dav_ fastcgi_ geoip geoip2 grpc_ gunzip gzip header_filter_by_lua http2 http3 image_filter
	init_by_lua init_worker_by_lua js_fetch_ keepalive_ limit_conn limit_req lingering_ log_ lua_ map_hash_ memcached_ mp4 msie_ open_file_cache output_buffers
	perl proxy_ quic_ referer_hash_ request_pool resolver scgi_ secure_link server split_clients ssi ssl_ status_zone
	sub_filter types userid uwsgi_ variables_hash_ vhost_traffic_status xslt_`)
