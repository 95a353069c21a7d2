// Package heroku receives what Heroku's Logplex drains send over HTTPS: syslog
// messages in octet-counted frames.
//
// A frame is `LENGTH <PRI>1 TIME HOST APP PROCID MSGID MESSAGE`. It looks like RFC 5424
// without the structured data, which Logplex leaves out; where it is there all the same,
// in the grammar of the RFC, it is kept apart from the message.
//
//	MESSAGE                       body
//	TIME                          time
//	severity in PRI               severity
//	Logplex-Drain-Token header    resource attribute drain_token
//	HOST, APP, PROCID             host_name, app_name, proc_id
//	facility in PRI               log_type: local3 is heroku, local7 app, else its name
//	MSGID, structured data        record attributes msg_id, structured_data
//
// A request is one group: all its lines are allowed or dropped together, and rules see
// the labels that all of its lines have in common. So host_name, app_name, proc_id and log_type
// are resource attributes where they are the same throughout the request, else record attributes.
//
// A frame that cannot be read is invalid, the others are stored. A request whose frames
// do not add up is 400.
package heroku
