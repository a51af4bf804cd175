//! The sentences that the cases of the grid rest on. Each case names one.

#![allow(missing_docs)]

pub(crate) const LINE_END: &str = "RFC 9112 §2.2: Although the line terminator for the start-line and fields is the sequence CRLF, a recipient MAY recognize a single LF as a line terminator (and we do not)";
pub(crate) const BARE_CR: &str = "RFC 9112 §2.2: A recipient of such a bare CR MUST consider that element to be invalid or replace each bare CR with SP";
pub(crate) const BEFORE_FIRST: &str = "RFC 9112 §2.2: A recipient that receives whitespace between the start-line and the first header field MUST either reject the message as invalid or consume each whitespace-preceded line";
pub(crate) const EMPTY_LINE: &str = "RFC 9112 §2.2: a server that is expecting to receive and parse a request-line SHOULD ignore at least one empty line (and we do not: it hides where a message ended)";
pub(crate) const GRAMMAR: &str = "RFC 9112 §2.2: When a server receives a sequence of octets that does not match the HTTP-message grammar, the server SHOULD respond with a 400 (Bad Request) response and close the connection";
pub(crate) const VERSION: &str = "RFC 9112 §2.3: HTTP-version = HTTP-name \"/\" DIGIT \".\" DIGIT; HTTP-version is case-sensitive";
pub(crate) const REQUEST_LINE: &str = "RFC 9112 §3: Recipients of an invalid request-line SHOULD respond with either a 400 (Bad Request) error";
pub(crate) const METHOD: &str =
    "RFC 9110 §9.1: method = token; the request method is case-sensitive";
pub(crate) const TARGET: &str = "RFC 9112 §3.2: No whitespace is allowed in the request-target";
pub(crate) const HOST: &str = "RFC 9112 §3.2: A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that lacks a Host header field and to any request message that contains more than one Host header field line or a Host header field with an invalid field value";
pub(crate) const ORIGIN_FORM: &str = "RFC 9112 §3.2.1: origin-form = absolute-path [ \"?\" query ]";
pub(crate) const ABSOLUTE: &str = "RFC 9112 §3.2.2: a server MUST accept the absolute-form in requests; when a Host field differs from it, it is ignored (and we refuse the difference)";
pub(crate) const AUTHORITY_FORM: &str =
    "RFC 9112 §3.2.3: The authority-form of request-target is only used for CONNECT requests";
pub(crate) const ASTERISK: &str = "RFC 9112 §3.2.4: The asterisk-form of request-target is only used for a server-wide OPTIONS request";
pub(crate) const FIELD: &str = "RFC 9112 §5: field-line = field-name \":\" OWS field-value OWS";
pub(crate) const COLON: &str = "RFC 9112 §5.1: A server MUST reject, with a response status code of 400 (Bad Request), any received request message that contains whitespace between a header field name and colon";
pub(crate) const FOLD: &str = "RFC 9112 §5.2: A server that receives an obs-fold in a request message MUST either reject the message by sending a 400 (Bad Request) or replace each received obs-fold";
pub(crate) const TE_OLD: &str = "RFC 9112 §6.1: A server that receives an HTTP/1.0 message containing a Transfer-Encoding header field MUST treat the message as if the framing is faulty";
pub(crate) const TE_AND_CL: &str = "RFC 9112 §6.1: A server MAY reject a request that contains both Content-Length and Transfer-Encoding; such a message might indicate an attempt to perform request smuggling";
pub(crate) const TE_TWICE: &str = "RFC 9112 §6.1: A sender MUST NOT apply the chunked transfer coding more than once to a message body";
pub(crate) const TE_UNKNOWN: &str = "RFC 9112 §6.1: A server that receives a request message with a transfer coding it does not understand SHOULD respond with 501 (we say 400, and close)";
pub(crate) const TE_NOT_FINAL: &str = "RFC 9112 §6.3: If a Transfer-Encoding header field is present in a request and the chunked transfer coding is not the final encoding, the server MUST respond with the 400 (Bad Request) status code and then close the connection";
pub(crate) const CL_INVALID: &str = "RFC 9112 §6.3: If a message is received without Transfer-Encoding and with an invalid Content-Length header field, the server MUST respond with a 400 (Bad Request) status code and then close the connection";
pub(crate) const CL_SHORT: &str = "RFC 9112 §6.3: If the sender closes the connection before the indicated number of octets are received, the recipient MUST consider the message to be incomplete and close the connection";
pub(crate) const BODY: &str = "RFC 9112 §6.3: If a valid Content-Length header field is present without Transfer-Encoding, its decimal value defines the expected message body length in octets";
pub(crate) const NO_BODY: &str = "RFC 9112 §6.3: If this is a request message and none of the above are true, then the message body length is zero (no message body is present)";
pub(crate) const CHUNK: &str =
    "RFC 9112 §7.1: chunk = chunk-size [ chunk-ext ] CRLF chunk-data CRLF, chunk-size = 1*HEXDIG";
pub(crate) const CHUNK_BIG: &str = "RFC 9112 §7.1: recipients MUST anticipate potentially large hexadecimal numerals and prevent parsing errors due to integer conversion overflows";
pub(crate) const CHUNK_EXT: &str = "RFC 9112 §7.1.1: A server ought to limit the total length of chunk extensions received in a request (to none)";
pub(crate) const TRAILERS: &str = "RFC 9112 §7.1.2: A recipient that removes the chunked coding from a message MAY selectively retain or discard the received trailer fields";
pub(crate) const INCOMPLETE: &str = "RFC 9112 §8: A message body that uses the chunked transfer coding is incomplete if the zero-sized chunk that terminates the encoding has not been received";
pub(crate) const PIPELINE: &str = "RFC 9112 §9.3.2: A server MUST send the corresponding responses in the same order that the requests were received";
pub(crate) const CLOSE: &str = "RFC 9112 §9.6: A server that receives a close connection option MUST NOT process any further requests received on that connection";
pub(crate) const URI_EMPTY_HOST: &str = "RFC 9110 §4.2.1: A recipient that processes such a URI reference (with an empty host identifier) MUST reject it as invalid";
pub(crate) const USERINFO: &str = "RFC 9110 §4.2.4: a recipient SHOULD parse for userinfo and treat its presence as an error; it is likely being used to obscure the authority";
pub(crate) const NAME: &str = "RFC 9110 §5.1: field-name = token";
pub(crate) const VALUE: &str = "RFC 9110 §5.5: a recipient of CR, LF, or NUL within a field value MUST either reject the message or replace each of those characters with SP";
pub(crate) const FORBIDDEN_TRAILER: &str = "RFC 9110 §6.5.1: Many fields cannot be processed outside the header section: those that describe message framing, routing, authentication, request modifiers, response controls, or content format";
pub(crate) const HOST_FIELD: &str = "RFC 9110 §7.2: Since the host and port information acts as an application-level routing mechanism, it is a frequent target for malware seeking to poison a shared cache or redirect a request to an unintended server";
pub(crate) const HOST_GRAMMAR: &str = "RFC 9110 §7.2: Host = uri-host [ \":\" port ]";
pub(crate) const CONNECTION: &str = "RFC 9110 §7.6.1: Intermediaries MUST parse a received Connection header field before a message is forwarded and remove any header field with the same name as the connection-option, and then the Connection field itself";
pub(crate) const CONNECTION_ABUSE: &str = "RFC 9110 §7.6.1: A sender MUST NOT send a connection option corresponding to a field that is intended for all recipients of the content";
pub(crate) const UPGRADE: &str = "RFC 9110 §7.8: A server MAY ignore a received Upgrade header field if it wishes to continue using the current protocol on that connection";
pub(crate) const UPGRADE_OLD: &str = "RFC 9110 §7.8: A server MUST ignore an Upgrade header field that is received in an HTTP/1.0 request";
pub(crate) const H2C: &str = "RFC 9113 §3.1: The \"h2c\" string was previously used as a token for use in the HTTP Upgrade mechanism's Upgrade header field; this usage was never widely deployed and is deprecated";
pub(crate) const CL_GRAMMAR: &str = "RFC 9110 §8.6: Content-Length = 1*DIGIT";
pub(crate) const CL_REPEATED: &str = "RFC 9110 §8.6: a message with multiple Content-Length values: the recipient MUST either reject the message as invalid or replace them with a single valid one";
pub(crate) const CL_BIG: &str = "RFC 9110 §8.6: a recipient MUST anticipate potentially large decimal numerals and prevent parsing errors due to integer conversion overflows";
pub(crate) const CONNECT: &str = "RFC 9110 §9.3.6: CONNECT is intended only for use in requests to a proxy; an origin server MAY accept it, but most origin servers do not implement CONNECT";
pub(crate) const CONNECT_BODY: &str =
    "RFC 9110 §9.3.6: A CONNECT request message does not have content";
pub(crate) const EXPECT: &str = "RFC 9110 §10.1.1: A server that receives an Expect field value containing a member other than 100-continue MAY respond with a 417 (Expectation Failed)";
pub(crate) const UNDERSCORE: &str = "RFC 3875 §4.1.18: the field name is converted to upper case, \"-\" replaced with \"_\": two fields become one meta-variable";
pub(crate) const FORWARDED: &str = "RFC 7239 §8.1: The \"Forwarded\" HTTP header field cannot be relied upon to be correct, as it may be modified, whether mistakenly or for malicious reasons, by every node on the way to the server, including the client";
pub(crate) const DOTS: &str = "RFC 3986 §6.2.2.3: The complete path segments \".\" and \"..\" are intended only for use within relative references; two readers resolve them at two places";
pub(crate) const PERCENT: &str = "RFC 3986 §3.2.2: a host identified by a registered name: URI producers must use percent-encoding only after UTF-8; HTTP routing has one spelling, and it has none";
pub(crate) const IDN: &str = "RFC 9110 §4.2: the host of an http URI is a URI component: US-ASCII; an internationalised name comes as its A-label";
pub(crate) const PORT: &str = "RFC 3986 §3.2.3: port = *DIGIT";

// HTTP/2
pub(crate) const H2_TRAILERS: &str =
    "RFC 9113 §8.1: A receiver MUST treat a second field section without END_STREAM as malformed";
pub(crate) const H2_LENGTH: &str = "RFC 9113 §8.1.1: A request is also malformed if the value of a content-length header field does not equal the sum of the DATA frame payload lengths that form the content";
pub(crate) const H2_MALFORMED: &str = "RFC 9113 §8.1.1: Malformed requests that are detected MUST be treated as a stream error of type PROTOCOL_ERROR; intermediaries MUST NOT forward a malformed request";
pub(crate) const H2_NAME: &str = "RFC 9113 §8.2.1: A field name MUST NOT contain characters in the ranges 0x00-0x20, 0x41-0x5a, or 0x7f-0xff";
pub(crate) const H2_COLON: &str = "RFC 9113 §8.2.1: With the exception of pseudo-header fields, field names MUST NOT include a colon";
pub(crate) const H2_VALUE: &str = "RFC 9113 §8.2.1: A field value MUST NOT contain the zero value, line feed, or carriage return at any position";
pub(crate) const H2_BLANK: &str =
    "RFC 9113 §8.2.1: A field value MUST NOT start or end with an ASCII whitespace character";
pub(crate) const H2_CONNECTION: &str = "RFC 9113 §8.2.2: Any message containing connection-specific header fields MUST be treated as malformed";
pub(crate) const H2_TE: &str = "RFC 9113 §8.2.2: the TE header field MAY be present; when it is, it MUST NOT contain any value other than \"trailers\"";
pub(crate) const H2_COOKIE: &str = "RFC 9113 §8.2.3: these MUST be concatenated into a single octet string using the two-octet delimiter of 0x3b, 0x20 before being passed into a non-HTTP/2 context";
pub(crate) const H2_PSEUDO_ORDER: &str = "RFC 9113 §8.3: All pseudo-header fields MUST appear in a field block before all regular field lines";
pub(crate) const H2_PSEUDO_TWICE: &str = "RFC 9113 §8.3: The same pseudo-header field name MUST NOT appear more than once in a field block";
pub(crate) const H2_PSEUDO_UNKNOWN: &str = "RFC 9113 §8.3: Endpoints MUST treat a request that contains undefined or invalid pseudo-header fields as malformed";
pub(crate) const H2_PSEUDO_TRAILER: &str =
    "RFC 9113 §8.3: Pseudo-header fields MUST NOT appear in a trailer section";
pub(crate) const H2_PSEUDO_NEEDED: &str = "RFC 9113 §8.3.1: All HTTP/2 requests MUST include exactly one valid value for the :method, :scheme, and :path pseudo-header fields, unless they are CONNECT requests";
pub(crate) const H2_PATH: &str = "RFC 9113 §8.3.1: This pseudo-header field MUST NOT be empty for \"http\" or \"https\" URIs; it starts with /, or is * for OPTIONS";
pub(crate) const H2_AUTHORITY: &str = "RFC 9113 §8.3.1: A server SHOULD treat a request as malformed if it contains a Host header field that identifies an entity that differs from the entity in the :authority pseudo-header field";
pub(crate) const H2_USERINFO: &str = "RFC 9113 §8.3.1: :authority MUST NOT include the deprecated userinfo subcomponent for \"http\" or \"https\" schemed URIs";
pub(crate) const H2_CONNECT: &str = "RFC 9113 §8.5: In HTTP/2, the CONNECT method: the :scheme and :path pseudo-header fields MUST be omitted; a CONNECT request that does not conform is malformed";
pub(crate) const H2_PROTOCOL: &str = "RFC 8441 §4: the :protocol pseudo-header field is only for requests with :method CONNECT, which then MUST include :scheme and :path";
