"""The payment service in Django, in one file: the change and its message are one transaction."""

import os
import sys

import django
from django.conf import settings
from django.core.management import call_command, execute_from_command_line
from django.db import connection, models, transaction
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from headrace.outbox.django import send

SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": "payment.db"}
POSTGRESQL = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": os.environ.get("PGDATABASE"),
    **{name: os.environ.get(f"PG{name}", "") for name in ("HOST", "PORT", "USER", "PASSWORD")},
}
settings.configure(
    SECRET_KEY=os.environ.get("SECRET_KEY", "only for trying it out"),
    ALLOWED_HOSTS=["localhost", "127.0.0.1", "testserver"],
    DATABASES={"default": POSTGRESQL if "PGDATABASE" in os.environ else SQLITE},
    INSTALLED_APPS=["headrace.outbox.django"],  # its migration makes the tables
    ROOT_URLCONF=__name__,
    USE_TZ=True,
)
django.setup()


class Account(models.Model):
    name = models.CharField(max_length=50, primary_key=True)
    balance = models.IntegerField()

    class Meta:
        app_label = "payment"


@csrf_exempt
def save(request: HttpRequest, name: str, amount: int) -> HttpResponse:
    """Move money into savings. The UPDATE locks the account, then the message is written."""
    with transaction.atomic():
        account = Account.objects.filter(name=name, balance__gte=amount)
        if not account.update(balance=F("balance") - amount):
            return HttpResponse(f"{name} does not have {amount}\n", status=409)
        send("transfers", {"account": name, "amount": amount}, key=name)
    return HttpResponse(status=204)


urlpatterns = [path("save/<name>/<int:amount>", save)]


def open_accounts(*names: str) -> None:
    call_command("migrate", verbosity=0)
    with connection.schema_editor() as editor:
        editor.create_model(Account)
    Account.objects.bulk_create(Account(name=name, balance=1000) for name in names)


if __name__ == "__main__":
    if sys.argv[1:2] == ["open"]:
        open_accounts(*sys.argv[2:])
    else:
        execute_from_command_line(sys.argv)
