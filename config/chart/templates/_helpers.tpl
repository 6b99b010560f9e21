{{- define "serviceAccount" -}}
{{ .Values.serviceAccount.name | default (printf "%s-controller-manager" .Release.Name) }}
{{- end }}
