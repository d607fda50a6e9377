{{/* What `egret agent` is told about flows: a list of arguments. What it would refuse is refused here, as far as a template
can see that: an agent that does not start guards no new pod. */}}

{{- define "egret.hubble.args" -}}
{{- with .Values.hubble -}}
- --flow-buffer={{ int .flowBuffer }}
{{- if .listen.enabled }}
{{ include "egret.hubble.listen" .listen }}
{{- end }}
{{- if .export.enabled }}
{{ include "egret.hubble.export" .export }}
{{- end }}
{{- end }}
{{- end }}

{{- define "egret.hubble.listen" -}}
{{- if not (or .tlsSecret (regexMatch "^(127(\\.[0-9]+){3}|::1)$" .address)) }}
{{- $remedy := "name a secret in hubble.listen.tlsSecret" }}
{{- fail (printf "hubble.listen.address %s is not of loopback: everybody could read flows there; %s" .address $remedy) }}
{{- end -}}
- {{ printf "--hubble-listen=%s" (include "egret.socket" .) | quote }}
{{- if .tlsSecret }}
- --hubble-tls-cert-file={{ include "egret.hubble.tls" . }}/tls.crt
- --hubble-tls-key-file={{ include "egret.hubble.tls" . }}/tls.key
- --hubble-tls-client-ca-files={{ include "egret.hubble.tls" . }}/ca.crt
{{- end }}
{{- end }}

{{/* Where the secret is mounted. */}}
{{- define "egret.hubble.tls" -}}
/etc/egret/hubble
{{- end }}

{{- define "egret.hubble.export" -}}
- --hubble-export-file-path=stdout
{{- range .allowList }}
- {{ printf "--hubble-export-allowlist=%s" (include "egret.hubble.filter" (list "allowList" .)) | quote }}
{{- end }}
{{- range .denyList }}
- {{ printf "--hubble-export-denylist=%s" (include "egret.hubble.filter" (list "denyList" .)) | quote }}
{{- end }}
{{- with .fieldMask }}
- {{ printf "--hubble-export-fieldmask=%s" (join " " .) | quote }}
{{- end }}
{{- end }}

{{/* A filter of the list of that name. Kubernetes replaces $(NAME) in arguments, and takes $$ for a $: patterns have some. */}}
{{- define "egret.hubble.filter" -}}
{{- if hasKey (fromJson (last .)) "Error" }}
{{- fail (printf "hubble.export.%s: %s is not one object of JSON" (first .) (last .)) }}
{{- end -}}
{{ last . | replace "$" "$$" }}
{{- end }}
